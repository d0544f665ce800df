"""How late the event loop is: the time between when a task should have woken and when it did."""

import asyncio

from shared.reporting import Histogram

SAMPLE_EVERY_S = 0.05


class LoopLag:
    """Samples the lag of the loop that `run` runs on."""

    def __init__(self) -> None:
        self._lags = Histogram()

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_EVERY_S
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.record(loop.time() - due)

    def record(self, lag_s: float) -> None:
        """Add one sample in seconds; negative ones (a clock that rounds down) count as none."""
        self._lags.record(max(0.0, lag_s))

    def p99_ms(self) -> float:
        """The 99th percentile since the start in milliseconds, 0 before the first sample."""
        return 1e3 * self._lags.percentile(99)

"""How late the event loop is: the time between when a task should have woken and when it did."""

import asyncio
from collections import deque

import numpy as np

SAMPLE_EVERY_S = 0.05
KEPT_SAMPLES = 6_000  # five minutes


class LoopLag:
    """Samples the lag of the loop that `run` runs on."""

    def __init__(self) -> None:
        self._lags_ms: deque[float] = deque(maxlen=KEPT_SAMPLES)

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_EVERY_S
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.record((loop.time() - due) * 1000)

    def record(self, lag_ms: float) -> None:
        """Add one sample in milliseconds; negative ones (a clock that rounds down) count as none."""
        self._lags_ms.append(max(0.0, lag_ms))

    def p99_ms(self) -> float:
        """The 99th percentile of the last five minutes in milliseconds, 0 before the first sample."""
        return float(np.percentile(self._lags_ms, 99)) if self._lags_ms else 0.0

"""The event loop's lag is seen when something blocks the loop."""

import asyncio
import time

import pytest

from thinker.lag import KEPT_SAMPLES, LoopLag


def test_nothing_sampled_is_no_lag() -> None:
    assert LoopLag().p99_ms() == 0.0


def test_percentile_of_a_bounded_window() -> None:
    lag = LoopLag()
    for _ in range(10):
        lag.record(1_000.0)
    for i in range(KEPT_SAMPLES):
        lag.record(i % 100)
    assert lag.p99_ms() == pytest.approx(98, abs=1)
    lag.record(-0.5)
    assert lag.p99_ms() >= 0.0


async def test_a_blocked_loop_shows() -> None:
    lag = LoopLag()
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(0.15)  # noqa: ASYNC251 - the very thing that must be seen
    await asyncio.sleep(0.01)
    task.cancel()
    assert lag.p99_ms() > 50

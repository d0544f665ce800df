"""The event loop's lag is seen when something blocks the loop."""

import asyncio
import time

import pytest

from thinker.server.lag import LoopLag


def test_nothing_sampled_is_no_lag() -> None:
    assert LoopLag().p99_ms() == 0.0


def test_percentile_in_milliseconds() -> None:
    lag = LoopLag()
    lag.record(-0.001)
    for ms in range(1, 1_001):
        lag.record(ms / 1_000)
    assert lag.p99_ms() == pytest.approx(990, rel=0.02)


async def test_a_blocked_loop_shows() -> None:
    lag = LoopLag()
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(0.15)  # noqa: ASYNC251 - the very thing that must be seen
    await asyncio.sleep(0.01)
    task.cancel()
    assert lag.p99_ms() > 50

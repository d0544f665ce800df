import threading
import time

import pytest

from shared.clock import Clock, ManualClock, MonotonicClock, UnitClock, UnpacedClock
from shared.links.waiting import WakeEvent

UNIT_S = 0.16


def test_a_million_units_drift_by_nothing() -> None:
    clock = ManualClock(start=12_345.678)
    units = UnitClock(UNIT_S, clock)
    units.start()
    for k in range(1_000_000):
        assert clock.wait_until(units.deadline(k))
    assert clock.now() == pytest.approx(12_345.678 + 999_999 * UNIT_S, abs=1e-9)


def test_oversleeping_is_not_passed_on() -> None:
    clock = ManualClock()
    units = UnitClock(UNIT_S, clock)
    clock.wait_until(units.deadline(1))
    clock.advance(0.5 * UNIT_S)  # the loop was late in unit 1
    clock.wait_until(units.deadline(2))
    assert clock.now() == pytest.approx(2 * UNIT_S)


def test_due_and_behind() -> None:
    clock = ManualClock()
    units = UnitClock(UNIT_S, clock)
    assert units.due(0)
    assert not units.due(1)
    assert units.behind_s(1) == 0
    clock.advance(3 * UNIT_S)
    assert units.due(3)
    assert units.behind_s(1) == pytest.approx(2 * UNIT_S)


def test_skipping_moves_every_deadline_and_starting_again_forgets_it() -> None:
    clock = ManualClock()
    units = UnitClock(UNIT_S, clock)
    units.skip(2)
    units.skip(1)
    assert units.deadline(10) == pytest.approx(13 * UNIT_S)
    clock.advance(100)
    units.start()
    assert units.deadline(10) == pytest.approx(100 + 10 * UNIT_S)


def test_manual_clock_never_goes_back() -> None:
    clock = ManualClock(start=5)
    assert clock.wait_until(3)
    assert clock.now() == 5


@pytest.mark.parametrize("clock", [ManualClock(), MonotonicClock()], ids=["manual", "monotonic"])
def test_a_set_event_ends_a_wait_before_its_time(clock: Clock) -> None:
    wake = WakeEvent()
    wake.set()
    before = clock.now()
    assert not clock.wait_until(before + 60, wake)
    assert clock.now() < before + 60
    wake.close()


def test_an_event_set_by_another_thread_ends_a_real_wait() -> None:
    wake = WakeEvent()
    threading.Thread(target=wake.set).start()
    assert not MonotonicClock().wait_until(time.monotonic() + 60, wake)
    wake.close()


def test_a_real_wait_is_never_too_short() -> None:
    clock = MonotonicClock()
    wake = WakeEvent()
    for wakeup in (None, wake):
        deadline = clock.now() + 0.002
        assert clock.wait_until(deadline, wakeup)
        assert clock.now() >= deadline
    wake.close()


def test_unpaced_everything_is_due_at_once() -> None:
    units = UnitClock(UNIT_S, UnpacedClock())
    assert units.due(1_000_000)
    assert units.clock.wait_until(units.deadline(1_000_000))
    assert units.deadline(1_000_000) > units.clock.now()

"""How long those may have to wait who are next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock import ManualClock
from thinker.engine.wait_estimator import WaitEstimator


def stays_of(lasted: list[float], ages: list[float]) -> WaitEstimator:
    """Sessions that lasted so long have been; others are there for so long."""
    clock = ManualClock()
    stays = WaitEstimator(clock.now)
    for number, seconds in enumerate(lasted):
        stays.begin(number)
        clock.advance(seconds)
        stays.end(number)
    end = clock.now() + max(ages, default=0.0)
    for number, age in sorted(enumerate(ages, start=len(lasted)), key=lambda each: -each[1]):
        clock.wait_until(end - age)
        stays.begin(number)
    clock.wait_until(end)
    return stays


def test_nothing_is_known_before_a_session_has_ended() -> None:
    assert stays_of([], [3.0]).wait_s(1) is None


def test_nothing_is_known_while_nobody_could_leave() -> None:
    assert stays_of([60.0], []).wait_s(1) is None


def test_who_came_first_is_taken_to_leave_first() -> None:
    stays = stays_of([60.0], [50.0, 20.0])
    assert [stays.wait_s(position) for position in (1, 2, 3, 4)] == pytest.approx([10, 40, 70, 100])


def test_who_stays_longer_than_others_did_may_stay_as_long_again() -> None:
    stays = stays_of([20.0, 40.0, 300.0], [100.0])
    assert stays.wait_s(1) == pytest.approx(200), "the others had left by then"
    assert stays_of([20.0, 40.0], [100.0]).wait_s(1) == pytest.approx(30)


def test_only_the_last_stays_count() -> None:
    assert stays_of([1000.0] * 20 + [10.0] * 16, [0.0]).wait_s(1) == pytest.approx(10)


seconds = st.floats(0.1, 1e4)


@given(lasted=st.lists(seconds, min_size=1, max_size=20), ages=st.lists(seconds, min_size=1, max_size=8))
def test_who_stands_further_back_never_waits_less(lasted: list[float], ages: list[float]) -> None:
    stays = stays_of(lasted, ages)
    waits = [stays.wait_s(position) or 0.0 for position in range(1, 20)]
    assert all(wait >= 0 for wait in waits)
    at_a_time = len(ages)
    for position in range(len(waits) - at_a_time):
        assert waits[position] <= waits[position + at_a_time]

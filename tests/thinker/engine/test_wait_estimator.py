"""How long those may have to wait who are next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinker.engine.admission import WaitEstimator


def wait_s(lasted: list[float], ages: list[float], position: int = 1) -> float | None:
    """After sessions that lasted so long, while others are there for so long."""
    waits = WaitEstimator()
    for seconds in lasted:
        waits.add(seconds)
    return waits.wait_s(position, ages)


def test_nothing_is_known_before_a_session_has_ended() -> None:
    assert wait_s([], [3.0]) is None


def test_nothing_is_known_while_nobody_could_leave() -> None:
    assert wait_s([60.0], []) is None


def test_who_came_first_is_taken_to_leave_first() -> None:
    waits = [wait_s([60.0], [50.0, 20.0], position) for position in (1, 2, 3, 4)]
    assert waits == pytest.approx([10, 40, 70, 100])


def test_who_stays_longer_than_others_did_may_stay_as_long_again() -> None:
    assert wait_s([20.0, 40.0, 300.0], [100.0]) == pytest.approx(200), "the others had left by then"
    assert wait_s([20.0, 40.0], [100.0]) == pytest.approx(30)


def test_only_the_last_sessions_count() -> None:
    assert wait_s([1000.0] * 20 + [10.0] * 16, [0.0]) == pytest.approx(10)


seconds = st.floats(0.1, 1e4)


@given(lasted=st.lists(seconds, min_size=1, max_size=20), ages=st.lists(seconds, min_size=1, max_size=8))
def test_who_stands_further_back_never_waits_less(lasted: list[float], ages: list[float]) -> None:
    waits = [wait_s(lasted, ages, position) or 0.0 for position in range(1, 20)]
    assert all(wait >= 0 for wait in waits)
    at_a_time = len(ages)
    for position in range(len(waits) - at_a_time):
        assert waits[position] <= waits[position + at_a_time]

"""Who is let in: what fits by what was measured, and never more than there are slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinker.engine.admission import Admission, Cost

UNIT_MS = 160


def cost(sessions: int, thinker_ms: float, performer_ms: float = 0.0, loop_ms: float = 0.0) -> Cost:
    return Cost(sessions=sessions, thinker_ms=thinker_ms, performer_ms=performer_ms, loop_ms=loop_ms)


def admission_of(*costs: Cost, slots: int = 8) -> Admission:
    return Admission(unit_ms=UNIT_MS, slots=slots, costs=costs)


def test_the_busier_process_and_the_loop_decide() -> None:
    assert admission_of(cost(1, 60.0)).most == 2, "in proportion, and a fifth of the unit is kept free"
    assert admission_of(cost(1, 20.0, performer_ms=60.0)).most == 2
    assert admission_of(cost(1, 20.0, loop_ms=60.0)).most == 2
    assert admission_of(cost(1, 16.0)).most == 8
    assert admission_of(cost(1, 16.0), slots=3).most == 3


def test_between_numbers_that_were_tried_it_is_a_straight_line() -> None:
    admission = admission_of(cost(1, 10.0), cost(2, 14.0), cost(4, 20.0))
    assert [admission.bound_ms(n) for n in range(1, 9)] == [10, 14, 17, 20, 25, 30, 35, 40]


def test_a_number_that_cost_less_than_a_smaller_one_was_measured_wrong() -> None:
    admission = admission_of(cost(1, 70.0), cost(2, 30.0), cost(4, 80.0))
    assert [admission.bound_ms(n) for n in (1, 2, 3, 4)] == [70, 70, 75, 80]


def test_what_is_not_known_is_taken_for_a_little_slower() -> None:
    admission = admission_of(cost(1, 40.0), cost(2, 60.0), cost(3, 120.0))
    assert admission.fits(1, None)
    assert not admission.fits(2, None)
    assert admission.fits(2, 1.0)


def test_on_a_slower_machine_fewer_fit() -> None:
    admission = admission_of(cost(1, 30.0))
    assert [max(n for n in range(8) if admission.fits(n, slower)) for slower in (1.0, 2.0, 9.0)] == [3, 1, 0]


def test_on_a_faster_machine_no_more_fit_than_were_tried() -> None:
    admission = admission_of(cost(1, 30.0))
    assert [admission.fits(running, 0.5) for running in (3, 4)] == [True, False]


ms = st.floats(0.01, 1e4)
measured = st.lists(
    st.builds(cost, st.sampled_from((1, 2, 4, 8, 16)), ms, ms, ms),
    min_size=1, max_size=5, unique_by=lambda each: each.sessions,
)  # fmt: skip
slowness = st.none() | st.floats(0.01, 100.0)


@given(costs=measured, slots=st.integers(1, 20), running=st.integers(0, 40), slower=slowness)
def test_never_more_than_slots_and_the_first_always(
    costs: list[Cost], slots: int, running: int, slower: float | None
) -> None:
    admission = admission_of(*costs, slots=slots)
    assert admission.fits(0, slower)
    assert running < slots or not admission.fits(running, slower)
    assert 1 <= admission.most <= slots


@given(costs=measured, slower=slowness)
def test_with_more_sessions_less_fits(costs: list[Cost], slower: float | None) -> None:
    admission = admission_of(*costs, slots=20)
    fits = [admission.fits(running, slower) for running in range(20)]
    assert fits == sorted(fits, reverse=True)
    assert sum(admission.fits(running, 1.0) for running in range(20)) == admission.most


@given(costs=measured, running=st.integers(0, 20), slower=st.tuples(ms, ms))
def test_on_a_slower_machine_nothing_fits_that_does_not_on_a_faster(
    costs: list[Cost], running: int, slower: tuple[float, float]
) -> None:
    admission = admission_of(*costs, slots=20)
    assert admission.fits(running, min(slower)) >= admission.fits(running, max(slower))


@pytest.mark.parametrize("sessions", range(1, 20))
def test_a_bound_grows_with_the_sessions(sessions: int) -> None:
    admission = admission_of(cost(1, 10.0), cost(4, 12.0, loop_ms=11.0), cost(2, 5.0, performer_ms=30.0))
    assert admission.bound_ms(sessions) <= admission.bound_ms(sessions + 1)
    assert admission.busy_ms(sessions) <= admission.bound_ms(sessions)

"""The grid of ticks that sessions are placed on."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinker.engine.scheduler import Phases

UNIT_S = 0.16
TINY_S = 1e-6

counts = st.integers(1, 8)
rooms = st.integers(1, 4)
moments = st.lists(st.floats(0.0, 1e5), min_size=1, max_size=24)


def placed(count: int, room: int, moments: list[float]) -> list[tuple[float, int, float]]:
    """(arrival, phase, first tick) of sessions that come one after the other and stay."""
    phases, taken, rows = Phases(count, UNIT_S, room), [], []
    for moment in itertools.islice(sorted(moments), count * room):
        phase, tick = phases.place(moment, taken)
        taken.append(phase)
        rows.append((moment, phase, tick))
    return rows


@given(count=counts, room=rooms, moments=moments)
def test_the_first_session_waits_for_nothing(count: int, room: int, moments: list[float]) -> None:
    arrival, _, tick = placed(count, room, moments)[0]
    assert tick == arrival


@given(count=counts, room=rooms, moments=moments)
def test_a_first_tick_is_less_than_a_unit_away(count: int, room: int, moments: list[float]) -> None:
    for arrival, _, tick in placed(count, room, moments):
        assert -TINY_S <= tick - arrival < UNIT_S


@given(count=counts, moments=moments)
def test_who_finds_all_phases_free_waits_for_the_nearest(count: int, moments: list[float]) -> None:
    for arrival, _, tick in placed(count, len(moments), moments):
        assert tick - arrival <= UNIT_S / count + TINY_S


@given(count=counts, room=rooms, moments=moments)
def test_all_ticks_lie_on_one_grid_and_those_of_a_phase_coincide(
    count: int, room: int, moments: list[float]
) -> None:
    rows = placed(count, room, moments)
    anchor = rows[0][2] - rows[0][1] / count * UNIT_S
    for _, phase, tick in rows:
        units = (tick - anchor) / UNIT_S - phase / count
        assert units == pytest.approx(round(units), abs=1e-4)


@given(count=counts, room=rooms, moments=moments)
def test_no_phase_takes_more_than_it_has_room_for(count: int, room: int, moments: list[float]) -> None:
    phases = [phase for _, phase, _ in placed(count, room, moments)]
    assert max(map(phases.count, phases)) <= room
    assert set(phases) <= set(range(count))


def test_when_all_have_left_the_next_one_waits_for_nothing_again() -> None:
    phases = Phases(2, UNIT_S, 2)
    phases.place(0.0, [])
    assert phases.place(0.05, [0]) == (1, UNIT_S / 2)
    phase, tick = phases.place(7.05, [])
    assert tick == 7.05
    assert phases.place(7.06, [phase])[1] > 7.06

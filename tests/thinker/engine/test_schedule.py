"""Who does what next, when several sessions could do several things."""

from typing import Any

import numpy as np
import pytest
import torch

from shared.clock import ManualClock, UnitClock
from shared.models.family import StepDecision, UserUnit
from thinker.engine.running_session import Action, Asked, Encoded, Pacing, RunningSession, Solved
from thinker.engine.schedule import next_task

UNIT_S = 0.16
NOBODY = UserUnit(pcm=np.zeros(0, np.float32), frames=np.zeros(0, np.uint8))
PHASE_S = UNIT_S / 2


class Present:
    """A user whose units are all there, or none."""

    def __init__(self) -> None:
        self.late = False

    def lacking(self) -> bool:
        return self.late

    def take(self) -> UserUnit:
        raise AssertionError("the schedule takes nothing")


class House:
    """Seats that are brought into the states that they pass through."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.seats: list[RunningSession] = []

    def seat(self, phase: int | None = 0, *, pacing: Pacing = Pacing.EAGER, **options: Any) -> RunningSession:
        clock = UnitClock(UNIT_S, self.clock)
        clock.start(PHASE_S * (phase or 0))
        seat = RunningSession(
            session=len(self.seats) + 1, slot=len(self.seats), source=Present(), on_unit=lambda _: None,
            clock=clock, pacing=pacing, state=None, phase=phase, **options,
        )  # fmt: skip
        self.seats.append(seat)
        return seat

    def next(self) -> tuple[Action, list[int]]:
        action, seats = next_task(self.seats)
        return action, [seat.session for seat in seats]


def encoded(seat: RunningSession) -> None:
    seat.encoded = Encoded(user=NOBODY, tokens=torch.empty(0), complete_at=0.0)


def sent(seat: RunningSession) -> None:
    seat.asked[seat.unit] = Asked(
        user=NOBODY, complete_at=0.0, decision=StepDecision(text="", speaking=False)
    )
    seat.encoded, seat.solving, seat.unit = None, seat.unit, seat.unit + 1


def returned(seat: RunningSession) -> None:
    assert seat.solving is not None
    seat.unremembered = Solved(unit=seat.solving, latents=torch.empty(0))
    seat.undecoded.append(seat.unremembered)
    seat.solving = None


@pytest.fixture
def house() -> House:
    return House()


def test_an_empty_house_waits(house: House) -> None:
    assert house.next() == (Action.WAIT, [])
    house.seat(None)
    assert house.next() == (Action.WAIT, []), "it has no phase before the user's first unit"


def test_one_session_goes_through_a_unit(house: House) -> None:
    seat = house.seat()
    assert house.next() == (Action.ENCODE, [1])
    encoded(seat)
    assert house.next() == (Action.STATE, [1])
    sent(seat)
    assert house.next() == (Action.WAIT, [])
    returned(seat)
    assert house.next() == (Action.DECODE, [1])
    seat.undecoded.popleft()
    assert house.next() == (Action.COMMIT_AHEAD, [1])
    seat.unremembered = None
    assert house.next() == (Action.WAIT, [])
    house.clock.advance(UNIT_S)
    assert house.next() == (Action.ENCODE, [1])


def test_a_unit_that_is_due_goes_before_what_the_user_of_another_waits_for(house: House) -> None:
    first, second = house.seat(0), house.seat(1)
    encoded(first)
    sent(first)
    returned(first)
    assert house.next() == (Action.DECODE, [1])
    house.clock.advance(PHASE_S)
    assert house.next() == (Action.ENCODE, [2])
    encoded(second)
    assert house.next() == (Action.STATE, [2])
    sent(second)
    assert house.next() == (Action.DECODE, [1])


def test_the_seats_of_a_phase_go_together(house: House) -> None:
    one, other, _ = house.seat(0), house.seat(0), house.seat(1)
    assert house.next() == (Action.ENCODE, [1, 2])
    encoded(one)
    assert house.next() == (Action.ENCODE, [2]), "what one still needs comes before the state pass of both"
    encoded(other)
    assert house.next() == (Action.STATE, [1, 2])


def test_the_phase_whose_tick_came_first_goes_first(house: House) -> None:
    first, second = house.seat(1), house.seat(0)
    house.clock.advance(PHASE_S)
    assert house.next() == (Action.ENCODE, [2])
    encoded(second)
    assert house.next() == (Action.STATE, [2]), "its whole unit, before the other's begins"
    sent(second)
    assert house.next() == (Action.ENCODE, [1])
    encoded(first)
    assert house.next() == (Action.STATE, [1])


def test_a_due_unit_is_remembered_first_and_an_early_one_encoded(house: House) -> None:
    seat = house.seat()
    encoded(seat)
    sent(seat)
    house.clock.advance(UNIT_S)
    assert house.next() == (Action.ENCODE_AHEAD, [1]), "the performer is still at the one before"
    encoded(seat)
    assert house.next() == (Action.WAIT, [])
    returned(seat)
    assert house.next() == (Action.COMMIT, [1]), "it is late: the next state pass goes before what is seen"
    seat.unremembered = None
    assert house.next() == (Action.STATE, [1])


def test_where_the_performer_remembers_the_thinker_waits_for_it(house: House) -> None:
    seat = house.seat(remembers=False)
    encoded(seat)
    sent(seat)
    returned(seat)
    seat.undecoded.popleft()
    house.clock.advance(UNIT_S)
    encoded(seat)
    assert house.next() == (Action.WAIT, [])
    seat.unremembered = None  # its slice has come
    assert house.next() == (Action.STATE, [1])


def test_a_late_user_holds_up_nobody_of_the_phase(house: House) -> None:
    seats = [house.seat(0), house.seat(0)]
    for seat in seats:
        encoded(seat)
        sent(seat)
        returned(seat)
        seat.undecoded.clear()
        seat.unremembered = None
    late: Any = seats[1].source
    late.late = True
    house.clock.advance(UNIT_S)
    assert house.next() == (Action.ENCODE, [1])
    house.clock.advance(0.05)
    assert house.next() == (Action.ENCODE, [1, 2]), "there is no more time to be spared: it has a hole"


def test_while_one_is_clogged_its_phase_begins_no_unit(house: House) -> None:
    one, _, _ = house.seat(0), house.seat(0), house.seat(1)
    for _ in range(2):
        encoded(one)
        sent(one)
        returned(one)
        one.unremembered = None
    house.clock.advance(5 * UNIT_S)
    assert house.next() == (Action.ENCODE, [3])
    encoded(house.seats[2])
    sent(house.seats[2])
    assert house.next() == (Action.DECODE, [1])
    one.undecoded.popleft()
    assert house.next() == (Action.ENCODE, [1, 2])


def test_at_boundary_pacing_a_unit_is_decoded_at_the_next_tick(house: House) -> None:
    seat = house.seat(pacing=Pacing.BOUNDARY)
    encoded(seat)
    sent(seat)
    returned(seat)
    assert house.next() == (Action.COMMIT_AHEAD, [1])
    seat.unremembered = None
    assert house.next() == (Action.WAIT, [])
    house.clock.advance(UNIT_S)
    assert house.next() == (Action.ENCODE, [1]), "what is due goes first"
    encoded(seat)
    sent(seat)
    assert house.next() == (Action.DECODE, [1])

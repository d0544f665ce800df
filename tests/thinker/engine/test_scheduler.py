"""Who does what next, when several sessions could do several things."""

from typing import Any

import numpy as np
import pytest

from shared.clock import ManualClock, UnitClock
from shared.models.family import UserUnit
from thinker.engine.running_session import Action, Pacing, PendingUnit, RunningSession
from thinker.engine.scheduler import next_task

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


class Schedule:
    """Sessions that are brought into the states that they pass through."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sessions: list[RunningSession] = []

    def add(self, phase: int | None = 0, *, pacing: Pacing = Pacing.EAGER) -> RunningSession:
        clock = UnitClock(UNIT_S, self.clock)
        clock.start(PHASE_S * (phase or 0))
        session = RunningSession(
            number=len(self.sessions) + 1, source=Present(), on_unit=lambda _: None, clock=clock,
            pacing=pacing, phase=phase,
        )  # fmt: skip
        self.sessions.append(session)
        return session

    def next(self) -> tuple[Action, list[int]]:
        action, sessions = next_task(self.sessions)
        return action, [session.number for session in sessions]


def encoded(session: RunningSession) -> None:
    session.encoded = PendingUnit(unit=session.unit, user=NOBODY, complete_at=0.0)


def sent(session: RunningSession) -> None:
    session.solving, session.encoded = session.encoded, None
    session.unit += 1


def returned(session: RunningSession) -> None:
    assert session.solving is not None
    session.uncommitted = session.solving
    session.undecoded.append(session.solving)
    session.solving = None


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def test_nobody_is_waited_for(schedule: Schedule) -> None:
    assert schedule.next() == (Action.WAIT, [])
    schedule.add(None)
    assert schedule.next() == (Action.WAIT, []), "it has no phase before the user's first unit"


def test_one_session_goes_through_a_unit(schedule: Schedule) -> None:
    session = schedule.add()
    assert schedule.next() == (Action.ENCODE, [1])
    encoded(session)
    assert schedule.next() == (Action.STATE, [1])
    sent(session)
    assert schedule.next() == (Action.WAIT, [])
    returned(session)
    assert schedule.next() == (Action.DECODE, [1])
    session.undecoded.popleft()
    assert schedule.next() == (Action.COMMIT_AHEAD, [1])
    session.uncommitted = None
    assert schedule.next() == (Action.WAIT, [])
    schedule.clock.advance(UNIT_S)
    assert schedule.next() == (Action.ENCODE, [1])


def test_a_unit_that_is_due_goes_before_what_the_user_of_another_waits_for(schedule: Schedule) -> None:
    first, second = schedule.add(0), schedule.add(1)
    encoded(first)
    sent(first)
    returned(first)
    assert schedule.next() == (Action.DECODE, [1])
    schedule.clock.advance(PHASE_S)
    assert schedule.next() == (Action.ENCODE, [2])
    encoded(second)
    assert schedule.next() == (Action.STATE, [2])
    sent(second)
    assert schedule.next() == (Action.DECODE, [1])


def test_the_sessions_of_a_phase_go_together(schedule: Schedule) -> None:
    one, other, _ = schedule.add(0), schedule.add(0), schedule.add(1)
    assert schedule.next() == (Action.ENCODE, [1, 2])
    encoded(one)
    assert schedule.next() == (Action.ENCODE, [2]), "what one still needs comes before the state pass of both"
    encoded(other)
    assert schedule.next() == (Action.STATE, [1, 2])


def test_the_phase_whose_tick_came_first_goes_first(schedule: Schedule) -> None:
    first, second = schedule.add(1), schedule.add(0)
    schedule.clock.advance(PHASE_S)
    assert schedule.next() == (Action.ENCODE, [2])
    encoded(second)
    assert schedule.next() == (Action.STATE, [2]), "its whole unit, before the other's begins"
    sent(second)
    assert schedule.next() == (Action.ENCODE, [1])
    encoded(first)
    assert schedule.next() == (Action.STATE, [1])


def test_a_due_unit_is_committed_first_and_an_early_one_encoded(schedule: Schedule) -> None:
    session = schedule.add()
    encoded(session)
    sent(session)
    schedule.clock.advance(UNIT_S)
    assert schedule.next() == (Action.ENCODE_AHEAD, [1]), "the performer is still at the one before"
    encoded(session)
    assert schedule.next() == (Action.WAIT, [])
    returned(session)
    assert schedule.next() == (Action.COMMIT, [1]), "it is late: the next state pass goes before what is seen"
    session.uncommitted = None
    assert schedule.next() == (Action.STATE, [1])


def test_a_late_user_holds_up_nobody_of_the_phase(schedule: Schedule) -> None:
    sessions = [schedule.add(0), schedule.add(0)]
    for session in sessions:
        encoded(session)
        sent(session)
        returned(session)
        session.undecoded.clear()
        session.uncommitted = None
    late: Any = sessions[1].source
    late.late = True
    schedule.clock.advance(UNIT_S)
    assert schedule.next() == (Action.ENCODE, [1])
    schedule.clock.advance(0.05)
    assert schedule.next() == (Action.ENCODE, [1, 2]), "there is no more time to be spared: it has a hole"


def test_while_one_is_backlogged_its_phase_begins_no_unit(schedule: Schedule) -> None:
    one, _, _ = schedule.add(0), schedule.add(0), schedule.add(1)
    for _ in range(2):
        encoded(one)
        sent(one)
        returned(one)
        one.uncommitted = None
    schedule.clock.advance(5 * UNIT_S)
    assert schedule.next() == (Action.ENCODE, [3])
    encoded(schedule.sessions[2])
    sent(schedule.sessions[2])
    assert schedule.next() == (Action.DECODE, [1])
    one.undecoded.popleft()
    assert schedule.next() == (Action.ENCODE, [1, 2])


def test_at_boundary_pacing_a_unit_is_decoded_at_the_next_tick(schedule: Schedule) -> None:
    session = schedule.add(pacing=Pacing.BOUNDARY)
    encoded(session)
    sent(session)
    returned(session)
    assert schedule.next() == (Action.COMMIT_AHEAD, [1])
    session.uncommitted = None
    assert schedule.next() == (Action.WAIT, [])
    schedule.clock.advance(UNIT_S)
    assert schedule.next() == (Action.ENCODE, [1]), "what is due goes first"
    encoded(session)
    sent(session)
    assert schedule.next() == (Action.DECODE, [1])

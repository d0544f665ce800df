"""How slow the machine is now: what a burst of something else does to it, and what joining and leaving.

And who is let in by it, second by second.
"""

import pytest

from shared.clock import ManualClock
from thinker.engine.admission import Admission, Cost, LoadMonitor
from thinker.engine.timings import Timings

UNIT_MS = 160
WARM_MS = 20.0  # of a session's unit at warm-up


class Pair:
    """Works so many times as long as at warm-up; looked at as often as the model thread would."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timings = Timings(self.clock, one_host=True)
        self.load = LoadMonitor(
            timings=self.timings,
            busy_ms=lambda sessions: WARM_MS * sessions,
            unit_ms=UNIT_MS,
            now=self.clock.now,
        )

    def run(self, seconds: float, *, sessions: int, slower: float = 1.0) -> None:
        for _ in range(round(seconds * 10)):
            self.load.sample(sessions)
            self.clock.advance(0.1)
            self.timings.performer_busy_s += 0.1 * slower * sessions * WARM_MS / UNIT_MS
            self.timings.thinker_busy_s += 0.05 * sessions * WARM_MS / UNIT_MS
        self.load.sample(sessions)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_it_takes_a_session_that_has_settled_and_a_second(pair: Pair) -> None:
    pair.run(1.8, sessions=2)
    assert (pair.load.share, pair.load.slower) == (None, None)
    pair.run(0.5, sessions=2)
    assert pair.load.share == pytest.approx(2 * WARM_MS / UNIT_MS)
    assert pair.load.slower == pytest.approx(1.0)


def test_a_machine_that_is_busy_otherwise_shows(pair: Pair) -> None:
    pair.run(10, sessions=2)
    pair.run(4, sessions=2, slower=1.8)
    assert pair.load.slower == pytest.approx(1.8)
    pair.run(4, sessions=2)
    assert pair.load.slower == pytest.approx(1.0)


def test_a_short_burst_does_not(pair: Pair) -> None:
    pair.run(10, sessions=2)
    pair.run(2, sessions=2, slower=5.0)
    assert pair.load.slower == pytest.approx(1.0)


def test_it_does_not_depend_on_the_number_of_sessions_and_outlives_its_changes(pair: Pair) -> None:
    pair.run(10, sessions=2, slower=1.5)
    for sessions in (3, 4, 3, 1):
        pair.run(0.5, sessions=sessions, slower=1.5)
        assert pair.load.share is None
        assert pair.load.slower == pytest.approx(1.5)
    pair.run(5, sessions=1, slower=1.5)
    assert pair.load.slower == pytest.approx(1.5)


def test_what_is_measured_while_a_session_settles_belongs_to_no_number(pair: Pair) -> None:
    pair.run(10, sessions=1)
    pair.run(0.9, sessions=2, slower=50.0)  # the first units of a session, and what its client does
    pair.run(6, sessions=2)
    assert pair.load.slower == pytest.approx(1.0)


def test_after_a_time_without_sessions_nothing_is_known(pair: Pair) -> None:
    pair.run(10, sessions=2, slower=1.5)
    pair.run(0.1, sessions=0)
    assert (pair.load.share, pair.load.slower) == (None, None)
    pair.clock.advance(1000)
    pair.run(6, sessions=1)
    assert pair.load.slower == pytest.approx(1.0)


class Admitting(Pair):
    """Somebody always waits to be let in; a session more costs `WARM_MS` more, of which six fit."""

    def __init__(self) -> None:
        super().__init__()
        cost = Cost(sessions=1, thinker_ms=WARM_MS / 2, performer_ms=WARM_MS, loop_ms=WARM_MS)
        self.admission = Admission(unit_ms=UNIT_MS, slots=8, costs=[cost])
        self.sessions = 0

    def open_for(self, seconds: int, *, slower: float = 1.0, every_s: float = 0.1) -> int:
        """Look that often whether one more fits; how many there are in the end."""
        for _ in range(round(seconds / every_s)):
            if self.admission.fits(self.sessions, self.load.slower):
                self.sessions += 1
            self.run(every_s, sessions=self.sessions, slower=slower)
        return self.sessions


def test_many_who_come_at_once_are_let_in_as_far_as_is_safe_and_the_last_once_it_is_known() -> None:
    pair = Admitting()
    assert pair.open_for(1) == 5
    assert pair.open_for(4) == 6
    assert pair.open_for(60) == 6


def test_on_a_machine_that_became_slower_fewer_are_let_in() -> None:
    assert Admitting().open_for(60, slower=2.0, every_s=2.5) == 3
    assert Admitting().open_for(60, slower=9.0, every_s=2.5) == 1


def test_who_was_let_in_stays_and_the_next_comes_when_there_is_room_again() -> None:
    pair = Admitting()
    pair.open_for(10)
    assert pair.open_for(10, slower=1.5) == 6
    pair.sessions -= 1
    assert pair.open_for(10, slower=1.5) == 5, "six would be too many now"
    assert pair.open_for(10) == 6, "and the machine is free again"


def test_who_leaves_is_replaced_at_once() -> None:
    pair = Admitting()
    pair.open_for(20)
    for _ in range(5):
        pair.sessions -= 1
        pair.run(0.3, sessions=pair.sessions)
        assert pair.open_for(1) == 6

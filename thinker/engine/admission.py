"""Whether one more session can be held in real time, and how long those may have to wait that can't be yet.

What each number of sessions cost when tried, how busy the pair is now, and how long sessions last.
"""

import itertools
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from thinker.engine.timings import Timings

KEPT_FREE = 0.2  # of a unit, for jitter, the media of the clients, and what else runs on the machine
PRESUMED_SLOWER = 1.25  # than at warm-up, as long as nobody has measured it
SAMPLE_EVERY_S = 1.0
SETTLES_WITHIN_S = 1.0  # after a session came or left: what was measured meanwhile belongs to no number
SAMPLES = 5  # of the load, that are looked back on
ENDED_SESSIONS = 16  # whose lengths are known


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Milliseconds a unit with a number of sessions: of each process, and of the loop of one phase."""

    sessions: int
    thinker_ms: float
    performer_ms: float
    loop_ms: float

    @property
    def busy_ms(self) -> float:
        """What the busier process works."""
        return max(self.thinker_ms, self.performer_ms)

    @property
    def bound_ms(self) -> float:
        """No unit can be shorter."""
        return max(self.busy_ms, self.loop_ms)


class Admission:
    """Decides whether one more session can be held in real time: no more than `slots` in any case.

    `costs` is what was measured, for at least one session; `unit_ms` what there is for a unit.
    """

    def __init__(self, *, unit_ms: float, slots: int, costs: Sequence[Cost]) -> None:
        self._unit_ms = unit_ms
        self._slots = slots
        costs = sorted(costs, key=lambda cost: cost.sessions)
        self._sessions = [cost.sessions for cost in costs]
        # More sessions never cost less: what was measured so was disturbed.
        self._bound_ms = list(itertools.accumulate((cost.bound_ms for cost in costs), max))
        self._busy_ms = list(itertools.accumulate((cost.busy_ms for cost in costs), max))

    def bound_ms(self, sessions: int) -> float:
        """The shortest unit with so many sessions."""
        return self._between(self._bound_ms, sessions)

    def busy_ms(self, sessions: int) -> float:
        """What the busier process worked in a unit with so many sessions, at warm-up."""
        return self._between(self._busy_ms, sessions)

    def fits(self, running: int, slower: float | None) -> bool:
        """Whether a session can join the `running` others.

        `slower`: how many times as long as at warm-up the work takes at present; None when not known. That
        more fit than were tried is not believed: nobody who was let in is put out again.
        """
        if running >= self._slots:
            return False
        if running == 0:
            return True  # the first is always let in: its report says whether real time holds
        slower = PRESUMED_SLOWER if slower is None else max(1.0, slower)
        return slower * self.bound_ms(running + 1) <= (1 - KEPT_FREE) * self._unit_ms

    @property
    def most(self) -> int:
        """How many sessions fit on a machine as fast as at warm-up."""
        return next(n for n in range(self._slots, 0, -1) if n == 1 or self.fits(n - 1, 1.0))

    def _between(self, ms: list[float], sessions: int) -> float:
        """Between measured numbers in a straight line, beyond them in proportion."""
        near = min(max(sessions, self._sessions[0]), self._sessions[-1])
        return float(np.interp(near, self._sessions, ms)) * sessions / near


@dataclass(kw_only=True, eq=False)
class LoadMonitor:
    """Compares what the pair works now with what it worked at warm-up, second by second.

    A machine that is busy otherwise shows as slower work; a burst of less than half of the last samples
    doesn't. What is known outlives a change of the number of sessions, but not a time without any.
    """

    timings: Timings
    busy_ms: Callable[[int], float]
    """What the busier process worked in a unit with so many sessions, at warm-up."""
    unit_ms: float
    now: Callable[[], float]
    """Seconds of the clock that the timings are of."""
    share: float | None = field(init=False, default=None)
    """Of the last second, what the busier process worked; None when not known."""
    slower: float | None = field(init=False, default=None)
    """How many times as long as at warm-up the work takes; None when not known."""
    _running: int = field(init=False, default=0)
    _settled_at: float = field(init=False, default=0.0)
    _sampled: tuple[float, float, float] | None = field(init=False, default=None)
    _recent: deque[float] = field(init=False, default_factory=lambda: deque(maxlen=SAMPLES))

    def sample(self, running: int) -> None:
        """To be called now and then, by the thread that writes the timings; `running` sessions are there."""
        now = self.now()
        if running != self._running:
            self._running, self._settled_at = running, now + SETTLES_WITHIN_S
            self._sampled = self.share = None
            if not running:
                self._recent.clear()
                self.slower = None
        if not running or now < self._settled_at:
            return
        if self._sampled is not None:
            began_at, *began = self._sampled
            if now - began_at < SAMPLE_EVERY_S:
                return
            worked = max(self.timings.thinker_busy_s - began[0], self.timings.performer_busy_s - began[1])
            self._note(worked / (now - began_at))
        self._sampled = now, self.timings.thinker_busy_s, self.timings.performer_busy_s

    def _note(self, share: float) -> None:
        self.share = share
        self._recent.append(share * self.unit_ms / self.busy_ms(self._running))
        self.slower = statistics.median(self._recent)


class WaitEstimator:
    """Estimates waits for a slot: sessions are expected to last as the last ones did."""

    def __init__(self) -> None:
        self._lasted: deque[float] = deque(maxlen=ENDED_SESSIONS)

    def add(self, lasted_s: float) -> None:
        self._lasted.append(lasted_s)

    def wait_s(self, position: int, ages: Sequence[float]) -> float | None:
        """How long the `position`th of those that wait, 1 is next, may have to.

        `ages` of those that run, in seconds. None before one has ended, and while none is there to end.
        """
        if not self._lasted or not ages:
            return None
        left = sorted(map(self._left_s, ages))
        rounds, place = divmod(position - 1, len(left))
        return left[place] + rounds * statistics.fmean(self._lasted)

    def _left_s(self, age: float) -> float:
        """What is left of a session: the mean of what was left of those that became so old.

        One that is older than all of them may last as long again, as far as can be known.
        """
        return statistics.fmean([each - age for each in self._lasted if each > age] or self._lasted)

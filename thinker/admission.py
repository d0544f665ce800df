"""How many sessions fit: from what each number of them cost when tried, and from how busy it is now."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

KEPT_FREE = 0.2  # of a unit, for jitter, the media of the clients, and what else runs on the machine
BUSY_UNITS = 50  # that a look at the present load goes back


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Milliseconds a unit with a number of sessions: of each process, and of the loop of one phase."""

    sessions: int
    thinker_ms: float
    performer_ms: float
    loop_ms: float

    @property
    def bound_ms(self) -> float:
        """No unit can be shorter."""
        return max(self.thinker_ms, self.performer_ms, self.loop_ms)


class Admission:
    """Decides whether one more session can be held in real time.

    Args:
        unit_ms: what there is for a unit.
        slots: no more than these in any case.
        costs: what was measured, for at least one session.
    """

    def __init__(self, *, unit_ms: float, slots: int, costs: list[Cost]) -> None:
        self._unit_ms = unit_ms
        self._slots = slots
        self._costs = sorted(costs, key=lambda cost: cost.sessions)

    def bound_ms(self, sessions: int) -> float:
        """The shortest unit with so many sessions: between measured numbers in proportion."""
        known = [cost.sessions for cost in self._costs]
        at = bisect.bisect_left(known, sessions)
        if at < len(known) and known[at] == sessions:
            return self._costs[at].bound_ms
        if at == 0 or at == len(known):
            near = self._costs[min(at, len(known) - 1)]
            return near.bound_ms * sessions / near.sessions
        less, more = self._costs[at - 1], self._costs[at]
        share = (sessions - less.sessions) / (more.sessions - less.sessions)
        return less.bound_ms + share * (more.bound_ms - less.bound_ms)

    def fits(self, running: int, load: float | None) -> bool:
        """Whether a session can join `running` others.

        Args:
            running: sessions that run or are about to.
            load: share of the time that the busier process has worked lately with those that ran then; None
                when that is not known. A machine that is busy with something else shows in it.
        """
        if running >= self._slots:
            return False
        if running == 0:
            return True  # the first is always let in: its report says whether real time holds
        slower = 1.0
        if load is not None:
            slower = max(1.0, load * self._unit_ms / self.bound_ms(running))
        return slower * self.bound_ms(running + 1) <= (1 - KEPT_FREE) * self._unit_ms

    @property
    def most(self) -> int:
        """How many sessions fit as far as was measured."""
        return max(n for n in range(1, self._slots + 1) if n == 1 or self.fits(n - 1, None))

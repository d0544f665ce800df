"""How many sessions fit: from what each number of them cost when tried, and from how slow it is now."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

KEPT_FREE = 0.2  # of a unit, for jitter, the media of the clients, and what else runs on the machine
PRESUMED_SLOWER = 1.25  # than at warm-up, as long as nobody has measured it


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
    """Decides whether one more session can be held in real time.

    Args:
        unit_ms: what there is for a unit.
        slots: no more than these in any case.
        costs: what was measured, for at least one session.
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
        """Whether a session can join `running` others.

        Args:
            running: sessions that run or are about to.
            slower: how many times as long as at warm-up the work takes at present; None when not known. That
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
        at = bisect.bisect_left(self._sessions, sessions)
        if at == 0 or at == len(ms):
            near = min(at, len(ms) - 1)
            return ms[near] * sessions / self._sessions[near]
        less, more = self._sessions[at - 1], self._sessions[at]
        return ms[at - 1] + (sessions - less) / (more - less) * (ms[at] - ms[at - 1])

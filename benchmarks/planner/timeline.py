"""Simulated time: timers, and work that goes on beside other work. All times in ms."""

import heapq
import itertools
import math
from collections.abc import Callable

Then = Callable[[], None]


class Timeline:
    """What happens next. The same calls give the same order of events.

    `slowed(n)` says how much longer everything takes while n processors work. That holds for all alike, so
    one number, the work that a processor busy from the start would have done, tells when each piece ends.
    """

    def __init__(self, slowed: Callable[[int], float]) -> None:
        self.now = 0.0
        self._slowed = slowed
        self._done = 0.0
        self._busy = 0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Then]] = []
        self._work: list[tuple[float, int, Then]] = []

    def at(self, when: float, then: Then) -> None:
        """Do something at a time that has not passed."""
        heapq.heappush(self._timers, (when, next(self._order), then))

    def after(self, ms: float, then: Then) -> None:
        """Do something when so much time has passed."""
        self.at(self.now + ms, then)

    def work(self, ms: float, processors: int, then: Then) -> None:
        """Keep processors busy with what takes so long undisturbed, then do something."""
        self._busy += processors

        def end() -> None:
            self._busy -= processors
            then()

        heapq.heappush(self._work, (self._done + ms, next(self._order), end))

    def advance(self) -> bool:
        """Go on to what happens next; False when nothing will."""
        if not self._timers and not self._work:
            return False
        pace = self._slowed(self._busy)
        end = self.now + (self._work[0][0] - self._done) * pace if self._work else math.inf
        if self._timers and self._timers[0][0] <= end:
            when, _, then = heapq.heappop(self._timers)
            self._done += (when - self.now) / pace
            self.now = when
        else:
            self._done, _, then = heapq.heappop(self._work)
            self.now = end
        then()
        return True

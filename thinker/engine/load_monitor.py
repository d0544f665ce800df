"""How busy the pair is at present, and how much slower than at warm-up the machine has become."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

from thinker.engine.timings import Timings

LOOK_EVERY_S = 1.0
SETTLES_WITHIN_S = 1.0  # after a session came or left: what was measured meanwhile belongs to no number
REMEMBERED_S = 5


class LoadMonitor:
    """Compares what the pair works now with what it worked at warm-up, second by second.

    A machine that is busy otherwise shows as slower work; a burst of less than half of the remembered seconds
    doesn't. What is known outlives a change of the number of sessions, but not a time without any.

    Args:
        timings: of all sessions.
        busy_ms: what the busier process worked in a unit with so many sessions, at warm-up.
        unit_ms: length of a unit.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        timings: Timings,
        *,
        busy_ms: Callable[[int], float],
        unit_ms: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share: float | None = None
        """Of the last second, what the busier process worked; None when not known."""
        self.slower: float | None = None
        """How many times as long as at warm-up the work takes; None when not known."""
        self._timings = timings
        self._busy_ms = busy_ms
        self._unit_ms = unit_ms
        self._now = now
        self._running = 0
        self._settled_at = 0.0
        self._looked: tuple[float, float, float] | None = None
        self._recent: deque[float] = deque(maxlen=REMEMBERED_S)

    def look(self, running: int) -> None:
        """To be called now and then, by the thread that writes the timings; `running` sessions are there."""
        now = self._now()
        if running != self._running:
            self._running, self._settled_at = running, now + SETTLES_WITHIN_S
            self._looked = self.share = None
            if not running:
                self._recent.clear()
                self.slower = None
        if not running or now < self._settled_at:
            return
        if self._looked is not None:
            began_at, *began = self._looked
            if now - began_at < LOOK_EVERY_S:
                return
            worked = max(self._timings.thinker_busy_s - began[0], self._timings.performer_busy_s - began[1])
            self._note(worked / (now - began_at))
        self._looked = now, self._timings.thinker_busy_s, self._timings.performer_busy_s

    def _note(self, share: float) -> None:
        self.share = share
        self._recent.append(share * self._unit_ms / self._busy_ms(self._running))
        self.slower = statistics.median(self._recent)

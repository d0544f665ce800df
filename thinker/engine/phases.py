"""Phases of the unit: when the ticks of each session come, so that what can be batched comes together.

With P phases, ticks come at anchor + (n + p / P) units. Sessions of one phase have their ticks together and
their work is batched; between phases Thinker and Performer alternate. The first session of all sets the
anchor, so that it waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


class Phases:
    """A grid of ticks.

    Args:
        count: phases in a unit.
        unit_s: length of a unit.
        room: sessions that a phase takes.
    """

    def __init__(self, count: int, unit_s: float, room: int) -> None:
        self._count = count
        self._unit_s = unit_s
        self._room = room
        self._anchor = 0.0

    def place(self, now: float, taken: Sequence[int]) -> tuple[int, float]:
        """Phase and first tick of a session whose first unit is complete `now`.

        Args:
            now: in seconds of the sessions' clock.
            taken: the phases of the sessions that run.
        """
        if not taken:
            self._anchor = now
        free = [phase for phase in range(self._count) if taken.count(phase) < self._room]
        assert free, "no more sessions than all phases have room for"
        first = {phase: self._next_tick(phase, now) for phase in free}
        phase = min(free, key=lambda each: first[each])
        return phase, first[phase]

    def _next_tick(self, phase: int, now: float) -> float:
        offset = self._anchor + phase / self._count * self._unit_s
        return offset + max(0, math.ceil((now - offset) / self._unit_s - 1e-9)) * self._unit_s

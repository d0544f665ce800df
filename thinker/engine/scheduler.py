"""What the Thinker does next, for all sessions together, and when their ticks come. No tensor is touched.

Units that are due go first, those of the phase whose tick came first before the others; then the most urgent
of the rest (see `Action`). All sessions of a phase that could do the same do it together.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinker.engine.running_session import Action, RunningSession


def next_task(sessions: Iterable[RunningSession]) -> tuple[Action, list[RunningSession]]:
    """The next action and who takes part; (WAIT, []) when there is nothing to do now."""
    placed = [session for session in sessions if session.phase is not None]
    held = {session.phase for session in placed if session.backlogged}  # whole phases, to stay together
    ready = [(session.next_action(held=session.phase in held), session) for session in placed]
    ready = [(action, session) for action, session in ready if action is not Action.WAIT]
    if not ready:
        return Action.WAIT, []
    due = [(action, session) for action, session in ready if action <= Action.STATE]
    most_urgent = min(action for action, _ in ready)
    pool = due or [(action, session) for action, session in ready if action is most_urgent]
    leader = min((session for _, session in pool), key=lambda each: each.clock.deadline(each.unit))
    batch = [(action, session) for action, session in pool if session.phase == leader.phase]
    # Sessions of a phase stay together: what some still need comes before the state pass of all.
    action = min(action for action, _ in batch)
    return action, [session for its, session in batch if its is action]


@dataclass(eq=False)
class Phases:
    """A grid of ticks, so that what can be batched comes together: `count` phases with `room` sessions each.

    With P phases, ticks come at anchor + (n + p / P) units. Sessions of one phase have their ticks together
    and their work is batched; between phases Thinker and Performer alternate. The first session of all sets
    the anchor, so that it waits for nothing.
    """

    count: int
    unit_s: float
    room: int
    _anchor: float = 0.0

    def place(self, now: float, taken: Sequence[int]) -> tuple[int, float]:
        """Phase and first tick of a session whose first unit is complete `now`, in seconds of its clock.

        The phases of the sessions that run are `taken`.
        """
        if not taken:
            self._anchor = now
        free = [phase for phase in range(self.count) if taken.count(phase) < self.room]
        assert free, "no more sessions than all phases have room for"
        first = {phase: self._next_tick(phase, now) for phase in free}
        phase = min(free, key=lambda each: first[each])
        return phase, first[phase]

    def _next_tick(self, phase: int, now: float) -> float:
        offset = self._anchor + phase / self.count * self.unit_s
        return offset + max(0, math.ceil((now - offset) / self.unit_s - 1e-9)) * self.unit_s

"""What the Thinker does next, for all sessions together. No tensor is touched here.

Units that are due go first, those of the phase whose tick came first before the others; then the most urgent
of the rest (see `Action`). All seats of a phase that could do the same do it together.
"""

from __future__ import annotations

from collections.abc import Iterable

from thinker.engine.running_session import Action, RunningSession


def next_task(seats: Iterable[RunningSession]) -> tuple[Action, list[RunningSession]]:
    """The next action and who takes part; (WAIT, []) when there is nothing to do now."""
    placed = [seat for seat in seats if seat.phase is not None]
    held = {seat.phase for seat in placed if seat.clogged}  # the whole phase, so that it stays together
    ready = [(seat.next_action(held=seat.phase in held), seat) for seat in placed]
    ready = [(action, seat) for action, seat in ready if action is not Action.WAIT]
    if not ready:
        return Action.WAIT, []
    due = [(action, seat) for action, seat in ready if action <= Action.STATE]
    most_urgent = min(action for action, _ in ready)
    pool = due or [(action, seat) for action, seat in ready if action is most_urgent]
    leader = min((seat for _, seat in pool), key=lambda seat: seat.clock.deadline(seat.unit))
    mates = [(action, seat) for action, seat in pool if seat.phase == leader.phase]
    # Seats of a phase stay together: what some still need comes before the state pass of all.
    action = min(action for action, _ in mates)
    return action, [seat for its, seat in mates if its is action]

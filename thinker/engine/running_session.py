"""One session in the engine, and its units on their way through the pair.

    tick k    encode u_k, state pass k, send its slice
    y_k here  decode, emit; then commit y_k and send that slice, in the idle time before tick k + 1

Tick 0 is the moment at which the user's first unit is there, or the next one of the session's phase, so that
the others come just before their ticks. No tensor is touched here.
"""

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from shared.clock import UnitClock
from shared.models.family import StepDecision, UserUnit
from thinker.units import AgentUnit, UserSource

FIRST_WITHIN_S = 0.5  # the user's first unit makes tick 0; who sends nothing is talked to all the same
LATE_WITHIN_S = 0.04  # a unit of the user that comes so long after its tick leaves no hole
MAX_UNDECODED = 2  # latents that wait


class Pacing(enum.Enum):
    """When a solved unit is decoded: as soon as it is there, or at the next tick as in the paper."""

    EAGER = "eager"
    BOUNDARY = "boundary"


class Action(enum.IntEnum):
    """What can be done next, the most urgent first: a unit that is due, then what the user waits for."""

    ENCODE = 0
    COMMIT = 1
    """Because the state pass of a due unit needs it."""
    STATE = 2
    DECODE = 3
    COMMIT_AHEAD = 4
    """In idle time."""
    ENCODE_AHEAD = 5
    """The Performer is still at the unit before."""
    WAIT = 6


@dataclass(kw_only=True, slots=True, eq=False)
class PendingUnit:
    """A unit from its encoding until it is decoded and committed; each stage adds what it made."""

    unit: int
    user: UserUnit
    complete_at: float
    """When the user's unit was complete, in seconds of the session's clock."""
    tokens: Tensor | None = None
    """[1, T, C], of the encoding."""
    decision: StepDecision | None = None
    """Of the state pass."""
    latents: Tensor | None = None
    """Of the solve."""


@dataclass(kw_only=True, eq=False)
class RunningSession:
    """A session from the moment that it is let in until it has ended.

    The event loop makes it, the model thread fills in `slot` and `state` when it begins. The pipeline does
    the work and moves the rest on; `next_action` is the policy for one session.
    """

    number: int
    source: UserSource
    on_unit: Callable[[AgentUnit], None]
    clock: UnitClock
    on_end: Callable[[str], None] = lambda _: None
    seed: int = 0
    pacing: Pacing = Pacing.EAGER
    slot: int = -1
    state: Any = None
    phase: int | None = None  # from the user's first unit on
    unit: int = 0  # the next state pass
    complete_before_tick_s: float = 0.0  # how long a unit of the user waits for the tick of its phase
    encoded: PendingUnit | None = None
    solving: PendingUnit | None = None
    undecoded: deque[PendingUnit] = field(default_factory=deque)
    uncommitted: PendingUnit | None = None
    sent_at: float = 0.0  # the last state slice
    last_emitted: float | None = None
    opened_at: float = field(init=False)
    stage_s: dict[str, float] = field(default_factory=dict)  # what the stages of the unit under way took

    def __post_init__(self) -> None:
        self.opened_at = self.clock.clock.now()

    @property
    def backlogged(self) -> bool:
        """Whether so much waits to be decoded that the next unit must wait too."""
        return len(self.undecoded) >= MAX_UNDECODED

    def next_action(self, *, held: bool = False) -> Action:
        """The order of work when several things could be done; no new unit is begun while `held`."""
        due = self.clock.due(self.unit) and not self.awaits_user() and not held
        free = due and self.solving is None
        to_commit = self.uncommitted is not None
        possible = {
            Action.ENCODE: free and self.encoded is None,
            Action.COMMIT: free and to_commit,
            Action.STATE: free,
            Action.DECODE: bool(self.undecoded) and self.may_decode(),
            Action.COMMIT_AHEAD: to_commit,
            Action.ENCODE_AHEAD: due and self.encoded is None,
        }
        return next((action for action, is_possible in possible.items() if is_possible), Action.WAIT)

    def awaits_user(self) -> bool:
        """Whether the unit whose tick has come should be there, isn't yet, and time can be spared for it."""
        placed = self.phase is not None
        if not self.clock.paced or self.encoded is not None or (placed and self.unit == 0):
            return False
        within_s = LATE_WITHIN_S if placed else FIRST_WITHIN_S
        return self.clock.behind_s(self.unit) < within_s and self.source.lacking()

    def next_tick(self) -> float | None:
        """When waiting for it makes sense: the moment of the next tick, if it is still to come."""
        return None if self.clock.due(self.unit) else self.clock.deadline(self.unit)

    def may_decode(self) -> bool:
        """Whether pacing lets the oldest of what is to be decoded be decoded now."""
        return self.pacing is Pacing.EAGER or self.clock.due(self.undecoded[0].unit + 1)

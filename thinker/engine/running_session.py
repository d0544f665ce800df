"""One session's way through the pair: what of it is under way, and what could be done next.

    tick k    encode u_k, state pass k, send its slice
    y_k here  decode, emit; then remember y_k and send that slice, in the idle time before tick k + 1

Tick 0 is the moment at which the user's first unit is there, or the next one of the session's phase, so that
the others come just before their ticks. No tensor is touched here.
"""

from __future__ import annotations

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """A unit of the user, between encoding and state pass; `tokens` [1, T, C]."""

    user: UserUnit
    tokens: Tensor
    complete_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is known of a unit between its state pass and its emission."""

    user: UserUnit
    complete_at: float
    decision: StepDecision


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """Latents that came back."""

    unit: int
    latents: Tensor


@dataclass(kw_only=True, eq=False)
class RunningSession:
    """A session. The pipeline does the work and moves these fields on; `next_action` is the policy."""

    session: int
    slot: int
    source: UserSource
    on_unit: Callable[[AgentUnit], None]
    clock: UnitClock
    pacing: Pacing
    state: Any
    remembers: bool = True  # or the Performer does
    unpaced: bool = False  # every tick is due at once (benches): no unit can be late or given up
    phase: int | None = None  # from the user's first unit on
    unit: int = 0  # the next state pass
    complete_before_tick_s: float = 0.0  # how long a unit of the user waits for the tick of its phase
    encoded: Encoded | None = None
    solving: int | None = None
    sent_ns: int = 0
    returned_ns: int = 0
    undecoded: deque[Solved] = field(default_factory=deque)
    unremembered: Solved | None = None
    asked: dict[int, Asked] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)  # seconds of the stages of the unit under way
    last_emitted: float | None = None

    @property
    def clogged(self) -> bool:
        """Whether so much waits to be decoded that the next unit must wait too."""
        return len(self.undecoded) >= MAX_UNDECODED

    def next_action(self, *, held: bool = False) -> Action:
        """The order of work when several things could be done; no new unit is begun while `held`."""
        due = self.clock.due(self.unit) and not self.awaits_user() and not held
        free = due and self.solving is None
        to_remember = self.unremembered is not None and self.remembers
        possible = {
            Action.ENCODE: free and self.encoded is None,
            Action.COMMIT: free and to_remember,
            Action.STATE: free and self.unremembered is None,
            Action.DECODE: bool(self.undecoded) and self._may_decode(),
            Action.COMMIT_AHEAD: to_remember,
            Action.ENCODE_AHEAD: due and self.encoded is None,
        }
        return next((action for action, is_possible in possible.items() if is_possible), Action.WAIT)

    def awaits_user(self) -> bool:
        """Whether the unit whose tick has come should be there, isn't yet, and time can be spared for it."""
        seated = self.phase is not None
        if self.unpaced or self.encoded is not None or (seated and self.unit == 0):
            return False
        within_s = LATE_WITHIN_S if seated else FIRST_WITHIN_S
        return self.clock.behind_s(self.unit) < within_s and self.source.lacking()

    @property
    def awaits_performer(self) -> bool:
        """Whether something that the next unit needs is still to come from the Performer."""
        return self.solving is not None or (self.unremembered is not None and not self.remembers)

    def next_tick(self) -> float | None:
        """When waiting for it makes sense: the moment of the next tick, if it is still to come."""
        return None if self.clock.due(self.unit) else self.clock.deadline(self.unit)

    def _may_decode(self) -> bool:
        return self.pacing is Pacing.EAGER or self.clock.due(self.undecoded[0].unit + 1)

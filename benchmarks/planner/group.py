"""Sessions of one phase on their way through simulated devices, and what a Thinker does next with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_UNDECODED = 2  # latents that wait; with so many the next unit waits too (thinker/seat.py)


@dataclass(slots=True, eq=False)
class Device:
    """One processor, or several that work as one.

    Thinkers and whole processes choose among the groups that they have; Performers and decoder shards take
    what is in the queue.
    """

    role: str
    processors: int = 1
    groups: list[Group] = field(default_factory=list)
    queue: deque[Job] = field(default_factory=deque)
    busy: bool = False
    worked_ms: float = 0.0


@dataclass(slots=True)
class Job:
    """Stages of a group's unit that a device does in one go."""

    stages: tuple[str, ...]
    group: Group
    then: Callable[[], None]


@dataclass(slots=True)
class Solved:
    """Latents that came back, of a unit that the user had completed then."""

    complete: float
    late: bool


@dataclass(slots=True, eq=False, kw_only=True)
class Group:
    """A group is one batch in every stage, one unit at a time; its flags are those of a session's seat.

    `ms` holds the costs of stages and messages (`stage_costs`). `tick` is when the next state pass is due;
    flat out it is due in any case.
    """

    ms: dict[str, float]
    sessions: int
    first_tick: float
    thinker: Device
    performer: Device
    decoder: Device
    unpaced: bool
    tick: float = field(init=False)
    complete: float = (
        0.0  # when the user's unit was that is being worked on: at its tick, flat out when taken
    )
    unit: int = 0
    step: int = 0  # within its unit, in one process
    encoded: bool = False
    solving: bool = False
    unremembered: bool = False
    remembers: bool = True  # or the Performer does
    slice_came: bool = False  # of what the Performer remembers
    undecoded: deque[Solved] = field(default_factory=deque)
    emitted: list[tuple[float, float]] = field(
        default_factory=list
    )  # when decoded, and from complete to then
    late: int = 0

    def __post_init__(self) -> None:
        self.tick = self.first_tick

    def take(self, now: float) -> None:
        """The user's next unit is taken to be encoded."""
        self.complete = now if self.unpaced else self.tick

    def next_tick(self, unit_ms: float) -> None:
        """The next state pass is that of the next unit."""
        self.unit += 1
        self.tick = self.first_tick + self.unit * unit_ms

    def due(self, now: float) -> bool:
        """Whether the next state pass is."""
        return self.unpaced or self.tick <= now

    def next_stage(self, now: float) -> tuple[int, str] | None:
        """What the group wants of its Thinker, the urgent first ("Order of work", docs/architecture.md)."""
        due = self.due(now) and len(self.undecoded) < MAX_UNDECODED
        free = due and not self.solving
        to_remember = self.unremembered and self.remembers
        possible = {
            (0, "append"): self.slice_came,
            (0, "encode"): free and not self.encoded,
            (0, "remember"): free and to_remember,
            (0, "state"): free and not self.unremembered,
            (1, "decode"): bool(self.undecoded) and self.decoder is self.thinker,
            (2, "remember"): to_remember,
            (3, "encode"): due and not self.encoded,
        }
        return next((stage for stage, is_possible in possible.items() if is_possible), None)

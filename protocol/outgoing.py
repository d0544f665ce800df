"""What waits for one client, and what it loses when it can't keep up. The generator never waits for a client.

How much is on its way is known from acks alone: a choked connection swallows megabytes before a send blocks.
Up to `window` units may be unacknowledged; the rest waits here. A full queue first gives up pictures, then
whole oldest units, and never sound alone. A client that acknowledged nothing while `patience` units were lost
is too slow.
"""

import dataclasses
from collections import deque

from protocol.media import NO_FLAGS, MediaFlags, MediaUnit


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingLimits:
    """Limits in units.

    Attributes:
        window: sent and not acknowledged, at most. 8 units are 1.3 s: a long round trip, not a long backlog.
        waiting: in the queue, at most.
        waiting_with_frames: of those, the newest that keep their pictures.
        patience: units lost in a row before the client counts as too slow; 32 are 5 s.
    """

    window: int = 8
    waiting: int = 3
    waiting_with_frames: int = 2
    patience: int = 32

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1, is {getattr(self, field.name)}")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """What the client will never get of the agent: whole units, and frames of units that it does get."""

    units: int
    frames: int


class OutgoingQueue:
    """Units for one client, oldest first. `offer` and `clear` on one side, `pop` and `ack` on the other."""

    def __init__(self, limits: OutgoingLimits) -> None:
        self._limits = limits
        self._waiting: deque[MediaUnit] = deque()
        self._in_flight: deque[int] = deque()
        self._lost_in_a_row = 0
        self._mark = NO_FLAGS

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def too_slow(self) -> bool:
        """The client took nothing for so long that the connection is to be closed (1013)."""
        return self._lost_in_a_row >= self._limits.patience

    def offer(self, unit: MediaUnit) -> Lost | None:
        """Add the newest unit, making room at the old end by the policy above; returns what that cost."""
        self._waiting.append(unit)
        units = frames = 0
        if len(self._waiting) > self._limits.waiting:
            self._waiting.popleft()
            units = 1
            self._lost_in_a_row += 1
            self._mark |= MediaFlags.DISCONTINUITY
        for index in range(len(self._waiting) - self._limits.waiting_with_frames):
            old = self._waiting[index]
            frames += len(old.frames)
            self._waiting[index] = dataclasses.replace(old, frames=())
        return Lost(units=units, frames=frames) if units or frames else None

    def pop(self) -> MediaUnit | None:
        """The next unit to send, or None when nothing waits or the window is full."""
        if not self._waiting or self.in_flight >= self._limits.window:
            return None
        unit = self._waiting.popleft()
        self._in_flight.append(unit.unit)
        marked = dataclasses.replace(unit, flags=unit.flags | self._mark)
        self._mark = NO_FLAGS
        return marked

    def ack(self, unit: int) -> None:
        """The client has everything up to `unit`; older or repeated acks change nothing."""
        while self._in_flight and self._in_flight[0] <= unit:
            self._in_flight.popleft()
            self._lost_in_a_row = 0

    def clear(self, mark: MediaFlags) -> None:
        """What waits is void; the next unit carries `mark` to say why."""
        self._waiting.clear()
        self._mark = mark

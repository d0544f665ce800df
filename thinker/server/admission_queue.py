"""Sessions that wait for a slot of the engine: first come, first served."""

import math
from collections import deque
from contextlib import suppress
from typing import Protocol

from protocol.messages import Queued
from thinker.units import Engine

# Who waits is told of another time when it differs by so much from the one that they were told.
NOTABLE_S = 5
NOTABLE_SHARE = 0.1


class QueuedSession(Protocol):
    """What the queue knows of a session."""

    told: Queued | None
    """The place in the queue that its user was told last."""

    @property
    def over(self) -> bool:
        """Its end is decided: it is about to leave, and no slot must be spent on it."""

    def begin(self) -> bool:
        """Take a slot of the engine, or return False where none is free."""

    def tell(self, place: Queued) -> None:
        """Tell its user the place in the queue."""

    def fail(self, reason: str) -> None:
        """End it: the engine will never have a slot again."""


class AdmissionQueue:
    """The order in which sessions get slots; with `most` waiting, others are turned away."""

    def __init__(self, engine: Engine, *, most: int) -> None:
        self._engine = engine
        self._most = most
        self._waiting: deque[QueuedSession] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, session: QueuedSession) -> bool:
        """Let the session begin, or wait; False when the queue is full."""
        if len(self) >= self._most:
            return False
        self._waiting.append(session)
        self.admit()
        return True

    def leave(self, session: QueuedSession) -> None:
        """The session is over, whether it waited or ran: the next ones move up."""
        with suppress(ValueError):
            self._waiting.remove(session)
        self.admit()

    def admit(self) -> None:
        """Begin the sessions that the engine has slots for, and tell the others how they stand.

        Call it now and then too: a slot can come free, or the Performer arrive, without a call from here.
        """
        if self._engine.fault is not None:
            for session in self._waiting:
                session.fail(self._engine.fault)
            return
        while self._waiting and self._engine.ready and (self._waiting[0].over or self._waiting[0].begin()):
            self._waiting.popleft()
        for position, session in enumerate(self._waiting, start=1):
            wait_s = self._engine.wait_s(position)
            place = Queued(position=position, eta_s=None if wait_s is None else math.ceil(wait_s))
            if not session.over and _differs(place, session.told):
                session.tell(place)


def _differs(place: Queued, told: Queued | None) -> bool:
    if told is None or place.position != told.position:
        return True
    if place.eta_s is None or told.eta_s is None:
        return place.eta_s is not told.eta_s
    return abs(place.eta_s - told.eta_s) >= max(NOTABLE_S, NOTABLE_SHARE * told.eta_s)

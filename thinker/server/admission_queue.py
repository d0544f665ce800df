"""Who may talk: sessions wait here for a slot of the engine, first come, first served."""

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from thinker.server.inbox import Inbox
from thinker.server.metrics import ServerMetrics
from thinker.units import AgentUnit, Engine, SessionHandle

# A slot can come free, or the Performer arrive, without a call from here: so look again this often.
LOOK_EVERY_S = 0.1
# Who waits hears of another time when it differs by so much from the one that they were told.
NOTABLE_S = 5
NOTABLE_SHARE = 0.1


class QueuedSession(Protocol):
    """What the queue knows of a session."""

    @property
    def inbox(self) -> Inbox:
        """Where the engine takes the session's user units from."""

    @property
    def over(self) -> bool:
        """Its end is decided: it is about to leave, and no slot must be spent on it."""

    def on_unit(self, unit: AgentUnit) -> None:
        """Called by the engine on the model thread."""

    def on_end(self, reason: str) -> None:
        """Called by the engine on the model thread."""

    def seated(self, handle: SessionHandle) -> None:
        """The session has a slot."""

    def queued(self, position: int, eta_s: int | None) -> None:
        """The session waits, 1 is next; for about `eta_s`, None when unknown. Again when that has changed."""

    def failed(self, reason: str) -> None:
        """The engine is beyond help."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """One who waits, and what they were told."""

    guest: QueuedSession
    position: int = 0
    eta_s: int | None = None

    def tell(self, position: int, wait_s: float | None) -> None:
        """Let the guest know, if it is worth it."""
        eta_s = None if wait_s is None else math.ceil(wait_s)
        if position != self.position or _differ(eta_s, self.eta_s):
            self.position, self.eta_s = position, eta_s
            self.guest.queued(position, eta_s)


def _differ(new: int | None, told: int | None) -> bool:
    if new is None or told is None:
        return new is not told
    return abs(new - told) >= max(NOTABLE_S, NOTABLE_SHARE * told)


class AdmissionQueue:
    """Gives the engine's slots to guests. Everything happens on the event loop.

    Args:
        engine: whose slots these are.
        metrics: gets the number of seated and waiting guests.
        max_waiting: guests beyond these are turned away.
    """

    def __init__(self, engine: Engine, metrics: ServerMetrics, *, max_waiting: int) -> None:
        self._engine = engine
        self._max_waiting = max_waiting
        self._waiting: deque[_Waiting] = deque()
        self._seated: dict[QueuedSession, SessionHandle] = {}
        metrics.sessions.set_function(self._seated.__len__)
        metrics.waiting.set_function(self._waiting.__len__)

    def join(self, guest: QueuedSession) -> bool:
        """Open a session for the guest or let it wait; false when the queue is full."""
        if len(self._waiting) >= self._max_waiting:
            return False
        self._waiting.append(_Waiting(guest))
        self.look()
        return True

    def leave(self, guest: QueuedSession) -> None:
        """The guest is gone, whether it was seated, waiting or neither: the next one moves up."""
        for waiting in [each for each in self._waiting if each.guest is guest]:
            self._waiting.remove(waiting)
        handle = self._seated.pop(guest, None)
        if handle is not None:
            self._engine.close_session(handle)
        self.look()

    def look(self) -> None:
        """Begin the sessions that the engine has slots for and tell the others how they stand."""
        if self._engine.fault is not None:
            for guest in (*self._seated, *(waiting.guest for waiting in self._waiting)):
                guest.failed(self._engine.fault)
            return
        while self._waiting and self._engine.ready and self._seat_next():
            pass
        for position, waiting in enumerate(self._waiting, start=1):
            if not waiting.guest.over:
                waiting.tell(position, self._engine.wait_s(position))

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def _seat_next(self) -> bool:
        """Let the first of those who wait go on; false when there is no slot for it."""
        guest = self._waiting[0].guest
        if guest.over:
            self._waiting.popleft()
            return True
        handle = self._engine.open_session(inbox=guest.inbox, on_unit=guest.on_unit, on_end=guest.on_end)
        if handle is None:
            return False
        self._waiting.popleft()
        self._seated[guest] = handle
        guest.seated(handle)
        return True

"""Bounds on what flows through a session: how much may wait, and how much may come."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionLimits:
    """What a client may do, and how long it may take.

    The allowance counts one for a message and one more for every `allowance_bytes` of it; a session needs
    about 30 a second.
    """

    hello_s: float = 10.0
    silent_s: float = 20.0
    ping_every_s: float = 5.0
    goodbye_s: float = 2.0
    warn_every_s: float = 1.0
    allowance_burst: int = 400
    allowance_per_s: int = 200
    allowance_bytes: int = 64 * 1024
    waiting_user_units: int = 8
    waiting_agent_units: int = 4
    waiting_messages: int = 256


class Mailbox(Generic[T]):
    """A queue between tasks of one loop whose writer never waits: beyond its size the oldest is lost."""

    def __init__(self, size: int) -> None:
        self._items: deque[T] = deque(maxlen=size)
        self._filled = asyncio.Event()
        self.lost = 0

    def __len__(self) -> int:
        """Items that wait."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Add the newest item."""
        self.lost += len(self._items) == self._items.maxlen
        self._items.append(item)
        self._filled.set()

    async def get(self) -> T:
        """The oldest item, as soon as there is one. For one reader at a time."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()


class Allowance:
    """A token bucket: `burst` at once, `per_s` in the long run.

    Args:
        burst: tokens that it holds at most, and at first.
        per_s: tokens that come back per second.
        now: the current time in seconds, of any clock that the caller keeps to.
    """

    def __init__(self, *, burst: float, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = burst
        self._at = now

    def spend(self, tokens: float, now: float) -> bool:
        """Take tokens; false when there weren't so many."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s) - tokens
        self._at = now
        return self._left >= 0

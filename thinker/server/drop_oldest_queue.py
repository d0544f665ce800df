"""A queue between two tasks whose writer never waits."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class DropOldestQueue(Generic[T]):
    """A queue between tasks of one loop; beyond its size the oldest item is lost."""

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

"""Media on its way through the pool's threads, one pump per direction and session; order is kept."""

import asyncio
import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor

from protocol.media import NO_FLAGS, Flags, Kind, MediaUnit
from thinker.server.convert import UserConverter, code_agent_media
from thinker.server.drop_oldest_queue import DropOldestQueue
from thinker.server.errors import PictureError
from thinker.units import AgentUnit


class MediaDecoder:
    """User units to the inbox. What comes too fast to be converted loses pictures, then whole old units.

    Args:
        pool: threads to convert on.
        waiting: units that may wait.
        complain: told of a picture that can't be used.
    """

    def __init__(self, pool: Executor, *, waiting: int, complain: Callable[[PictureError], None]) -> None:
        self._pool = pool
        self._complain = complain
        self._units: DropOldestQueue[MediaUnit] = DropOldestQueue(waiting)

    @property
    def lost(self) -> int:
        """Units that came too fast."""
        return self._units.lost

    def put(self, unit: MediaUnit) -> None:
        """Take over one unit; never waits."""
        self._units.put(unit)

    async def run(self, make_converter: Callable[[], UserConverter]) -> None:
        """Convert until cancelled; the converter is made for the first unit, when the client is known."""
        loop = asyncio.get_running_loop()
        converter: UserConverter | None = None
        while True:
            unit = await self._units.get()
            if self._units:
                unit = dataclasses.replace(unit, frames=())  # newer pictures wait already
            converter = converter or make_converter()
            try:
                await loop.run_in_executor(self._pool, converter.convert, unit)
            except PictureError as error:
                self._complain(error)


class MediaEncoder:
    """The engine's units to media units for the client.

    Args:
        pool: threads to code on.
        waiting: units that may wait.
        unit_ms: length of a unit.
    """

    def __init__(self, pool: Executor, *, waiting: int, unit_ms: int) -> None:
        self._pool = pool
        self._unit_us = unit_ms * 1000
        self._units: DropOldestQueue[AgentUnit] = DropOldestQueue(waiting)

    @property
    def lost(self) -> int:
        """Units that came too fast."""
        return self._units.lost

    def put(self, unit: AgentUnit) -> None:
        """Take over one unit; never waits."""
        self._units.put(unit)

    async def run(self, offer: Callable[[MediaUnit], None]) -> None:
        """Code until cancelled, and offer each unit; one that follows a gap is marked."""
        loop = asyncio.get_running_loop()
        expected = 0
        while True:
            unit = await self._units.get()
            audio, frames = await loop.run_in_executor(self._pool, code_agent_media, unit.media)
            offer(
                MediaUnit(
                    kind=Kind.AGENT,
                    flags=NO_FLAGS if unit.unit <= expected else Flags.DISCONTINUITY,
                    epoch=unit.epoch,
                    unit=unit.unit,
                    pts_us=unit.unit * self._unit_us,
                    audio=audio,
                    frames=frames,
                )
            )
            expected = unit.unit + 1

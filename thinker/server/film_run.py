"""One film as its client sees it: waiting, being made, over. Belongs to the event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from enum import Enum

from shared.film_request import FilmRequest
from thinker.film.engine import Film, FilmEngineLike, Fragment


class RunState(Enum):
    """As OpenAI calls what a video may be; a film that was stopped is none of these and forgotten."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class FilmFailedError(Exception):
    """A film can't be made further; says why."""


class FilmRun:
    """A film from its request to its end."""

    def __init__(self, engine: FilmEngineLike, request: FilmRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.state = RunState.QUEUED
        self.frames = 0
        """That were made so far."""
        self.fault = ""
        self._engine = engine
        self._loop = loop
        self._film: Film | None = None
        self._made: deque[Fragment] = deque()
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        return self.state in {RunState.COMPLETED, RunState.FAILED, RunState.STOPPED}

    @property
    def progress(self) -> int:
        """Percent."""
        total = self.request.frames
        return 100 if self.state is RunState.COMPLETED else 100 * self.frames // total if total else 0

    def start(self) -> bool:
        """Begin to be made, if there is room."""
        if self.state is not RunState.QUEUED:
            return True
        self._film = self._engine.open_film(
            self.request,
            on_fragment=lambda fragment: self._soon(self._on_fragment, fragment),
            on_end=lambda reason: self._soon(self.fail, reason),
        )
        if self._film is None:
            return False
        self.state = RunState.IN_PROGRESS
        self._news.set()
        return True

    def change_prompt(self, prompt: str) -> None:
        """From the next block on."""
        if self._film is not None:
            self._engine.change_prompt(self._film, prompt)

    def stop(self) -> None:
        """Make it no further; what was made and not taken is let go."""
        if self.over:
            return
        self._leave(RunState.STOPPED)

    def fail(self, reason: str) -> None:
        """It can't be made further."""
        if self.over:
            return
        self.fault = reason
        self._leave(RunState.FAILED)

    async def wait_news(self) -> None:
        """Until its state changes, or something was made."""
        await self._news.wait()
        self._news.clear()

    async def fragments(self) -> AsyncIterator[Fragment]:
        """Every block as it is made; another one is made when the one before was dealt with.

        Raises:
            FilmFailedError: it could not be made to its end.
        """
        while True:
            while self._made:
                fragment = self._made.popleft()
                yield fragment
                if self._film is not None:
                    self._engine.take(self._film)
            if self.state is RunState.FAILED:
                raise FilmFailedError(self.fault)
            if self.over:
                return
            await self.wait_news()

    def _on_fragment(self, fragment: Fragment) -> None:
        if self.over:
            return
        self._made.append(fragment)
        self.frames += fragment.block.frames
        if fragment.block.last:
            self.state = RunState.COMPLETED
        self._news.set()

    def _leave(self, state: RunState) -> None:
        self.state = state
        self._made.clear()
        self._news.set()
        if self._film is not None:
            self._engine.close_film(self._film)

    def _soon(self, function: object, argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]

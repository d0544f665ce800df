"""All films of one server: who waits, what is remembered, and what is shown of it."""

import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from starlette.applications import Starlette

from shared.film_request import FilmRequest
from thinker.film.engine import FilmEngineLike, FilmReport
from thinker.film.video_encoder import finish_file
from thinker.report import EventLoopLag
from thinker.server.api_errors import ApiError
from thinker.server.film_request import MAX_FRAMES
from thinker.server.film_run import FilmFailedError, FilmRun, RunState
from thinker.server.metrics import LoopLag, ReportMetrics

MOST_WAITING = 32
MOST_JOBS = 200  # remembered ones, whatever their state
KEPT_S = 3600  # after a job's end
START_EVERY_S = 0.05
FAULT_TOLD_S = 3.0


class Job:
    """A film that a client asks for and fetches later. Its file has no name: nothing stays of it, ever."""

    def __init__(self, run: FilmRun, model: str, size: str, warnings: list[str]) -> None:
        self.id = f"video_{secrets.token_hex(12)}"
        self.run = run
        self.model = model
        self.size = size
        self.warnings = warnings
        self.created_at = int(time.time())
        self.completed_at: int | None = None
        self.expires_at: int | None = None
        self.file: IO[bytes] | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def state(self) -> RunState:
        """Completed when its file is, a moment after its last block."""
        unfinished = self.run.state is RunState.COMPLETED and self.completed_at is None
        return RunState.IN_PROGRESS if unfinished else self.run.state

    def path(self) -> Path:
        """Its file, for as long as the job is remembered."""
        assert self.file is not None
        return path_of(self.file)

    def forget(self) -> None:
        """Stop it, and free its file."""
        self.run.stop()
        if self.file is not None:
            self.file.close()
            self.file = None

    def public(self) -> dict[str, Any]:
        """OpenAI's *video* object, and what we add."""
        request = self.run.request
        assert request.frames is not None
        failed = self.run.state is RunState.FAILED
        return {
            "id": self.id, "object": "video", "model": self.model, "status": self.state.value,
            "progress": 99 if self.run.progress == 100 and self.completed_at is None else self.run.progress,
            "created_at": self.created_at, "completed_at": self.completed_at, "expires_at": self.expires_at,
            "size": self.size, "seconds": f"{request.frames / request.fps:g}",
            "prompt": " / ".join(scene.prompt for scene in request.scenes),
            "error": {"code": "generation_failed", "message": self.run.fault} if failed else None,
            "num_frames": request.frames, "fps": request.fps, "seed": request.seed, "warnings": self.warnings,
        }  # fmt: skip


def path_of(file: IO[bytes]) -> Path:
    """A name by which a file without one can be opened."""
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


class FilmManager:
    """Holds every film from its request until it is forgotten."""

    def __init__(self, engine: FilmEngineLike) -> None:
        self.engine = engine
        self.jobs: dict[str, Job] = {}
        self._waiting: list[FilmRun] = []
        self._runs: set[FilmRun] = set()
        self._nobody = asyncio.Event()  # no film is under way
        self._nobody.set()
        self._lag = LoopLag()
        self._ending = False
        registry = CollectorRegistry()
        self.metrics = ReportMetrics(registry, self.report)
        Gauge("thinker_films_waiting", "Films that wait for a place", registry=registry).set_function(
            lambda: len(self._waiting)
        )
        Gauge("thinker_jobs", "Jobs that are remembered", registry=registry).set_function(self.jobs.__len__)

    @property
    def size(self) -> str:
        shape = self.engine.format
        return f"{shape.width}x{shape.height}"

    def models(self) -> list[dict[str, Any]]:
        """What `/v1/models` lists."""
        shape = self.engine.format
        return [
            {
                "id": self.engine.model,
                "workload": "film",
                "size": self.size,
                "fps": shape.fps,
                "max_frames": MAX_FRAMES,
                "block_frames": shape.block_frames(1),
            }
        ]

    def report(self) -> FilmReport:
        lag = EventLoopLag(p99=round(self._lag.p99_ms(), 3))
        return msgspec.structs.replace(self.engine.report(), event_loop_lag_ms=lag)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(part()) for part in (self._lag.run, self._keep_house)]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for job in self.jobs.values():
            job.forget()

    async def end_sessions(self, within_s: float) -> None:
        """Begin nothing more, stop what is being made, and let clients be told, so long at most."""
        self._ending = True
        for run in list(self._runs):
            run.fail(self.engine.fault or "the server is shutting down")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._nobody.wait(), within_s)
        if self.engine.fault is not None and self.jobs:
            await asyncio.sleep(FAULT_TOLD_S)  # who asks for a job now and then shall learn what became of it

    def begin(self, request: FilmRequest) -> FilmRun:
        """Take a film in; it waits for a place. An ApiError where it can't be taken.

        Whoever begins it calls `leave` when done with it.
        """
        if self.engine.fault is not None:
            raise ApiError(503, self.engine.fault, code="server_fault")
        if self._ending or not self.engine.ready:
            raise ApiError(503, "the server is not ready", code="not_ready")
        if len(self._waiting) >= MOST_WAITING:
            raise ApiError(
                429, f"{MOST_WAITING} films wait already; try again later", code="too_many_waiting"
            )
        run = FilmRun(self.engine, request, asyncio.get_running_loop())
        self._runs.add(run)
        self._nobody.clear()
        self._waiting.append(run)
        self._start_waiting()
        return run

    def leave(self, run: FilmRun) -> None:
        """Nobody is there for this film any more."""
        run.stop()
        self._runs.discard(run)
        if not self._runs:
            self._nobody.set()
        if run in self._waiting:
            self._waiting.remove(run)

    def position(self, run: FilmRun) -> int:
        """How many films are before this one that waits."""
        return self._waiting.index(run) if run in self._waiting else 0

    def begin_job(self, request: FilmRequest, warnings: list[str]) -> Job:
        """A film that is made whether or not its client stays."""
        if len(self.jobs) >= MOST_JOBS and not self._forget_oldest():
            raise ApiError(429, f"{MOST_JOBS} jobs are under way already", code="too_many_jobs")
        job = Job(self.begin(request), self.engine.model, self.size, warnings)
        self.jobs[job.id] = job
        job.task = asyncio.create_task(self._make(job))
        return job

    def forget(self, job: Job) -> None:
        """Stop it if it runs, and free what it holds."""
        job.forget()
        self.jobs.pop(job.id, None)

    async def _make(self, job: Job) -> None:
        """Write a job's blocks to its file, and the file in its final form at the end."""
        try:
            with tempfile.TemporaryFile() as fragmented:
                async for fragment in job.run.fragments():
                    first = fragment.encoded.init if fragment.block.number == 0 else b""
                    await asyncio.to_thread(fragmented.write, first + fragment.encoded.fragment)
                if job.run.state is not RunState.COMPLETED:
                    return
                fragmented.flush()
                job.file = tempfile.TemporaryFile()  # noqa: SIM115 - kept until the job is forgotten
                await asyncio.to_thread(finish_file, path_of(fragmented), job.path())
            job.completed_at = int(time.time())
        except FilmFailedError:
            pass  # the run says why
        except OSError as error:
            job.run.state = RunState.FAILED
            job.run.fault = f"the film could not be written: {error.strerror}"
        finally:
            job.expires_at = int(time.time()) + KEPT_S
            self.leave(job.run)

    async def _keep_house(self) -> None:
        """Begin films that wait, and forget old jobs."""
        while True:
            await asyncio.sleep(START_EVERY_S)
            self._start_waiting()
            now = time.time()
            for job in [each for each in self.jobs.values() if each.expires_at and each.expires_at < now]:
                self.forget(job)

    def _start_waiting(self) -> None:
        while self._waiting and (self._waiting[0].over or self._waiting[0].start()):
            self._waiting.pop(0)

    def _forget_oldest(self) -> bool:
        over = [job for job in self.jobs.values() if job.run.over]
        if over:
            self.forget(min(over, key=lambda job: job.created_at))
        return bool(over)

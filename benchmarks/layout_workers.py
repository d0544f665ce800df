"""Layouts of processes for `bench layouts`: fresh processes that do nothing until they are told to."""

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from benchmarks.harness import END_WITHIN_S, hold, one_process, performing, pipeline_options, spawned
from benchmarks.planner.measure import WeightBytes, weight_bytes
from shared.clock import UnpacedClock
from shared.config import RuntimeConfig
from shared.devices import claim_core
from shared.errors import RuntimeFault
from shared.memory import rss_mb
from shared.models.family import Role
from shared.processes.model import load_model

MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Sessions that run unpaced, so many units each."""

    units: int
    sessions: int = 1
    phases: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Resident MB of each process; what the stages read of the weights, and a session's cache, in bytes."""

    rss_mb: dict[str, float]
    weights: WeightBytes | None = None
    session_bytes: int = 0


Run = Callable[[Work, Callable[[], None]], float]


@dataclass(kw_only=True)
class Worker:
    """A layout: `serve` runs in its process. As a context it ends with that."""

    name: str
    serve: Callable[[Connection, RuntimeConfig], None]
    config: RuntimeConfig
    _process: BaseProcess = field(init=False)
    _connection: Connection = field(init=False)

    def __enter__(self) -> Self:
        self._connection, theirs = multiprocessing.Pipe()
        self._process = spawned(self.serve, theirs, self.config)
        theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()  # which ends what waits for work
        if kind is None:
            self._process.join(END_WITHIN_S)
        self._process.kill()
        self._process.join()

    def await_ready(self) -> None:
        """Wait until its model is loaded."""
        self._answer()

    def begin(self, work: Work) -> None:
        """Warm up for the work; what comes of `finish` is measured between `go` and then."""
        self._connection.send(work)
        self._answer()

    def go(self) -> None:
        """Begin to measure."""
        self._connection.send(None)

    def finish(self) -> float:
        """Milliseconds in which every session went on by a unit."""
        return float(self._answer())

    def memory(self) -> Memory:
        """What it holds."""
        self._connection.send(MEMORY)
        answer = self._answer()
        assert isinstance(answer, Memory)
        return answer

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except EOFError:
            raise RuntimeFault(f"bench layouts: the process of {self.name!r} has ended") from None


def serve_pair(connection: Connection, config: RuntimeConfig) -> None:
    """A Thinker, and its Performer in one more process."""
    family = load_model(config, "cpu", Role.THINKER)
    with claim_core("thinker", config.pin), performing(config, family) as performer:

        def run(work: Work, when_warm: Callable[[], None]) -> float:
            options = pipeline_options(config, work.sessions, work.phases)
            measured = hold(
                family, performer.link, UnpacedClock(), options, units=work.units, sessions=work.sessions,
                when_warm=when_warm,
            )  # fmt: skip
            return measured.round_ms

        def memory() -> Memory:
            return Memory(rss_mb={"Thinker": rss_mb() or 0.0, "Performer": rss_mb(performer.pid) or 0.0})

        _serve(connection, run, memory)


def serve_one_process(connection: Connection, config: RuntimeConfig) -> None:
    """Everything one after the other, batched over the sessions."""
    family = load_model(config, "cpu")

    def run(work: Work, when_warm: Callable[[], None]) -> float:
        return one_process(family, work.units, work.sessions, when_warm)

    def memory() -> Memory:
        rss = {"one process": rss_mb() or 0.0}
        return Memory(rss_mb=rss, weights=weight_bytes(family), session_bytes=family.memory_bytes())

    with claim_core("one process", config.pin):
        _serve(connection, run, memory)


def _serve(connection: Connection, run: Run, memory: Callable[[], Memory]) -> None:
    def when_warm() -> None:
        connection.send("warm")
        connection.recv()

    connection.send("ready")
    with suppress(EOFError):  # all is measured
        while True:
            asked = connection.recv()
            connection.send(memory() if asked == MEMORY else run(asked, when_warm))

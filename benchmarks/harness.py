"""What the benches share: users who never fall silent, a Performer process, sessions through a pair."""

import dataclasses
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from performer.loop import perform
from shared.chunking import ChunkMode
from shared.clock import Clock
from shared.config import RuntimeConfig
from shared.devices import claim_core
from shared.errors import RuntimeFault
from shared.links.base import LinkEnd
from shared.models.family import Family, Role, UserUnit
from shared.models.single import replies_to
from shared.processes.lifetime import die_with_parent
from shared.processes.model import handshake_params, load_model
from shared.processes.rendezvous import RendezvousListener, accept_peers, join_peer
from shared.processes.roles import PERFORMER, THINKER
from shared.processes.secret import new_secret
from thinker.engine.pipeline import Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import Timings
from thinker.report import UnitCounts

JOIN_WITHIN_S = 120.0
END_WITHIN_S = 10.0
SENTENCE = "This sentence is here so that the agent has something to say while it is measured."
SENTENCE_UNITS = 60  # it takes so long to say, and a rest
WARM_UP_UNITS = 12


class ActiveUser:
    """A user who makes noise, moves, and types a sentence now and then.

    Args:
        family: whose units these are.
        arrives_at: when the first unit is complete, in seconds of the monotonic clock.
    """

    def __init__(self, family: Family, *, arrives_at: float = 0.0) -> None:
        media = family.media
        rng = np.random.default_rng(0)
        self._pcm = (0.05 * rng.standard_normal(media.input_unit_samples)).astype(np.float32)
        shape = (media.frames_per_unit, media.input_height, media.input_width, 3)
        self._frames = rng.integers(0, 255, shape, dtype=np.uint8)
        self._arrives_at = arrives_at
        self._units = itertools.count()

    def lacking(self) -> bool:
        """Whether the user is still to come; afterwards there is always more to say."""
        return time.monotonic() < self._arrives_at

    def take(self) -> UserUnit:
        """The next unit."""
        texts = (SENTENCE,) if next(self._units) % SENTENCE_UNITS == 0 else ()
        return UserUnit(pcm=self._pcm, frames=self._frames, texts=texts)


class Measured(Timings):
    """Timings with the mean time in which every session went on by a unit."""

    round_ms: float = 0.0
    counts: UnitCounts


def cut_down(config: RuntimeConfig, layers: int | None) -> RuntimeConfig:
    """The config with so many layers, which are all alike; random weights, since no others would fit."""
    if layers is None:
        return config
    transformer = config.model.get("transformer", {}) | {"layers": layers}
    return dataclasses.replace(config, weights="", model=config.model | {"transformer": transformer})


def pipeline_options(config: RuntimeConfig, sessions: int = 1, phases: int = 1) -> PipelineOptions:
    """How the config has sessions run, for so many of them."""
    return PipelineOptions(
        slots=sessions, phases=min(phases, sessions), chunk_mode=ChunkMode(config.chunk_mode),
        solve_timeout_s=config.solve_timeout_s,
    )  # fmt: skip


@contextmanager
def running_sessions(
    family: Family,
    link: LinkEnd,
    clock: Clock,
    options: PipelineOptions,
    active_users: Sequence[ActiveUser],
) -> Iterator[Pipeline]:
    """A pipeline with a session for each user; they end with the context, if it ends well."""
    pipeline = Pipeline(
        family=family, link=link, memory=family.allocate(options.slots), clock=clock, wakeup=link.receiver,
        options=options, timings=Timings(clock, one_host=True), counts=UnitCounts(),
    )  # fmt: skip
    for number, active_user in zip(_session_numbers, active_users, strict=False):
        pipeline.open(
            RunningSession(
                number=number, seed=number, source=active_user, on_unit=lambda _: None,
                clock=pipeline.unit_clock(),
            )
        )  # fmt: skip
    yield pipeline
    while not pipeline.idle:
        pipeline.wakeup.wait(None)
        pipeline.collect()
    for session in list(pipeline.sessions):
        pipeline.close(session)


_session_numbers = itertools.count(1)


def hold(
    family: Family,
    link: LinkEnd,
    clock: Clock,
    options: PipelineOptions,
    *,
    units: int,
    sessions: int = 1,
    when_warm: Callable[[], None] = lambda: None,
) -> Measured:
    """Hold so many sessions through the pair for so many units each, after a warm-up."""
    measured = Measured(clock, one_host=True)
    with running_sessions(
        family, link, clock, options, [ActiveUser(family) for _ in range(sessions)]
    ) as pipeline:
        while pipeline.counts.emitted < warm_up_units(units, sessions) * sessions:
            pipeline.step()
        when_warm()
        pipeline.timings = measured
        pipeline.counts = measured.counts = UnitCounts()
        began = time.monotonic()
        while measured.counts.emitted < units * sessions:
            pipeline.step()
        measured.round_ms = 1e3 * (time.monotonic() - began) * sessions / measured.counts.emitted
    return measured


def warm_up_units(units: int, sessions: int = 1) -> int:
    """Units of each session before a run of so many counts."""
    return max(1, min(WARM_UP_UNITS, units) // sessions)


def one_process(
    family: Family, units: int, sessions: int = 1, when_warm: Callable[[], None] = lambda: None
) -> float:
    """Milliseconds in which one process moves all sessions on by a unit, batched."""
    active_users = [ActiveUser(family) for _ in range(sessions)]
    users = ([active_user.take() for active_user in active_users] for _ in itertools.count())
    replies = replies_to(family, [1] * sessions, users)
    for _ in range(warm_up_units(units, sessions)):
        next(replies)
    when_warm()
    began = time.monotonic()
    for _ in range(units):
        next(replies)
    return 1e3 * (time.monotonic() - began) / units


@dataclass(frozen=True, kw_only=True, slots=True)
class Performing:
    """A Performer process."""

    link: LinkEnd
    pid: int


@contextmanager
def performing(config: RuntimeConfig, family: Family, *, link: str = "auto") -> Iterator[Performing]:
    """A Performer in a process of its own; it ends with the context."""
    secret = new_secret()
    with RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        process = spawned(_perform, config, listener.port, secret, link)
        ended = threading.Event()
        threading.Thread(target=_watch, args=(process, ended), daemon=True).start()
        try:
            params = handshake_params(family, config, secret=secret, link=link)
            with accept_peers(listener, params, timeout_s=JOIN_WITHIN_S, stop=ended)["performer"] as end:
                assert process.pid is not None
                yield Performing(link=end, pid=process.pid)
            ended.wait(END_WITHIN_S)
        finally:
            process.kill()
            ended.wait()


@contextmanager
def performer_process(config: RuntimeConfig, family: Family, *, link: str = "auto") -> Iterator[LinkEnd]:
    """The link to a Performer in a process of its own; both end with the context."""
    with performing(config, family, link=link) as performer:
        yield performer.link


def spawned(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A fresh process that does this, with its parent's pid behind the arguments, and ends with its parent.

    Ctrl-C is its parent's business alone.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_child, args=(os.getpid(), work, arguments))
    resource_tracker.ensure_running()  # or the start would run it, which lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _child(parent: int, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    die_with_parent(parent)
    try:
        work(*arguments)
    except RuntimeFault as fault:
        sys.exit(f"bench: {fault}")


def _watch(process: BaseProcess, ended: threading.Event) -> None:
    process.join()
    ended.set()


def _perform(config: RuntimeConfig, port: int, secret: str, link: str) -> None:
    family = load_model(config, "cpu", Role.PERFORMER)
    params = handshake_params(family, config, secret=secret, link=link)
    with (
        claim_core("performer", config.pin),
        join_peer("127.0.0.1", port, params, role=PERFORMER, at=THINKER, timeout_s=JOIN_WITHIN_S) as end,
    ):
        perform(
            family,
            end,
            slots=config.sessions,
            stopping=lambda: False,
        )

"""What the benches share: users who never fall silent, a Performer process, sessions through a pair."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np

from performer.loop import perform
from scripts.common import load_model, terms_of
from shared.clock import Clock
from shared.config import RuntimeConfig
from shared.devices import claim_core
from shared.links.base import LinkEnd
from shared.models.family import Family, Observation
from shared.models.single import replies_to
from shared.parent import die_with_parent
from shared.rendezvous import Listener, accept_performer, join_thinker
from thinker.pipeline import Counts, Pipeline, PipelineOptions
from thinker.timings import Timings
from thinker.units import UserUnit

JOIN_WITHIN_S = 120.0
SENTENCE = "This sentence is here so that the agent has something to say while it is measured."
WARM_UP_UNITS = 12


class Talker:
    """A user who makes noise, moves, and types one sentence at the start."""

    def __init__(self, family: Family[Any, Any]) -> None:
        media = family.media
        rng = np.random.default_rng(0)
        self._pcm = (0.05 * rng.standard_normal(media.input_unit_samples)).astype(np.float32)
        shape = (media.frames_per_unit, media.input_height, media.input_width, 3)
        self._frames = rng.integers(0, 255, shape, dtype=np.uint8)
        self._texts: tuple[str, ...] = (SENTENCE,)

    def lacking(self) -> bool:
        """There is always more to say."""
        return False

    def take(self) -> UserUnit:
        """The next unit."""
        texts, self._texts = self._texts, ()
        return UserUnit(pcm=self._pcm, frames=self._frames, texts=texts, interrupted=False, epoch=0)

    def observe(self) -> Observation:
        """The same for a model."""
        unit = self.take()
        return Observation(pcm=unit.pcm, frames=unit.frames, texts=unit.texts)


class Measured(Timings):
    """Timings with the mean time in which every session went on by a unit."""

    round_ms: float = 0.0
    counts: Counts


def hold(
    family: Family[Any, Any],
    link: LinkEnd,
    clock: Clock,
    options: PipelineOptions,
    *,
    units: int,
    sessions: int = 1,
) -> Measured:
    """Hold so many sessions through the pair for so many units each, after a warm-up."""
    measured, counts = Measured(one_host=True), Counts()
    pipeline = Pipeline(
        family=family, link=link, memory=family.allocate(options.slots), clock=clock, wakeup=link.receiver,
        options=options, timings=Timings(one_host=True), counts=counts,
    )  # fmt: skip
    numbers = itertools.islice(_session_numbers, sessions)
    seats = [
        pipeline.open(session=number, seed=1, source=Talker(family), on_unit=lambda _: None)
        for number in numbers
    ]
    warm_up = min(WARM_UP_UNITS, units)
    while counts.emitted < warm_up * sessions:
        pipeline.step()
    pipeline.timings = measured
    pipeline.counts = measured.counts = Counts()
    began = time.monotonic()
    while measured.counts.emitted < units * sessions:
        pipeline.step()
    measured.round_ms = 1e3 * (time.monotonic() - began) * sessions / measured.counts.emitted
    while not pipeline.idle:
        pipeline.wakeup.wait(None)
        pipeline.collect()
    for seat in seats:
        pipeline.close(seat)
    return measured


_session_numbers = itertools.count(1)


def one_process(family: Family[Any, Any], units: int, sessions: int = 1) -> float:
    """Milliseconds in which one process moves all sessions on by a unit, batched."""
    talkers = [Talker(family) for _ in range(sessions)]
    users = ([talker.observe() for talker in talkers] for _ in itertools.count())
    replies = replies_to(family, [1] * sessions, users)
    for _ in range(min(WARM_UP_UNITS, units)):
        next(replies)
    began = time.monotonic()
    for _ in range(units):
        next(replies)
    return 1e3 * (time.monotonic() - began) / units


@contextmanager
def performer_process(
    config: RuntimeConfig, family: Family[Any, Any], *, link: str = "auto"
) -> Iterator[LinkEnd]:
    """A Performer in a process of its own and the link to it; both end with the context."""
    with Listener("127.0.0.1", 0) as listener:
        process = multiprocessing.get_context("spawn").Process(
            target=_perform, args=(config, listener.port, link, os.getpid()), daemon=True
        )
        process.start()
        ended = threading.Event()
        threading.Thread(target=_watch, args=(process, ended), daemon=True).start()
        end = accept_performer(listener, terms_of(family, config, link), timeout_s=JOIN_WITHIN_S, stop=ended)
    with end:
        yield end
    process.join(10)
    process.kill()


def _watch(process: BaseProcess, ended: threading.Event) -> None:
    process.join()
    ended.set()


def _perform(config: RuntimeConfig, port: int, link: str, parent: int) -> None:
    die_with_parent(parent)
    family = load_model(config, "cpu")
    terms = terms_of(family, config, link)
    with (
        claim_core("performer", config.pin),
        join_thinker("127.0.0.1", port, terms, timeout_s=JOIN_WITHIN_S) as end,
    ):
        perform(family, end, slots=config.sessions, stopping=lambda: False)

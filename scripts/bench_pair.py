"""The pair: per-stage times, how well the two processes overlap, and the same work in one process."""

from __future__ import annotations

import argparse
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
from rich.console import Console

from performer.loop import perform
from scripts.bench import BenchResult
from scripts.common import load_model, terms_of
from shared.clock import Clock, FlatOutClock, MonotonicClock, UnitClock
from shared.config import load_config
from shared.links.base import LinkEnd
from shared.models.family import Family, Observation
from shared.models.single import reply_to
from shared.parent import die_with_parent
from shared.rendezvous import Listener, accept_performer, join_thinker
from thinker.pipeline import Counts, Pacing, Pipeline
from thinker.timings import LOOP, STAGES, Timings
from thinker.units import UserUnit

JOIN_WITHIN_S = 120.0
SENTENCE = "This sentence is here so that the agent has something to say while it is measured."
WARM_UP_UNITS = 12


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run all three and compare."""
    config = load_config(args.config)
    family = load_model(config, "cpu")
    with _performer(args.config, family) as link:
        console.print(f"link {link.kind}, {args.units} units a run")
        flat = _run(family, link, FlatOutClock(), Pacing.EAGER, args.units, session=1)
        eager = _run(family, link, MonotonicClock(), Pacing.EAGER, args.units, session=2)
        boundary = _run(family, link, MonotonicClock(), Pacing.BOUNDARY, args.units, session=3)
    one = _one_process(family, args.units)
    runs = {"flat out": flat, "eager, 160 ms": eager, "boundary, 160 ms": boundary}
    rows: list[dict[str, str | float]] = []
    for name in (*STAGES, "solve_plus_exchange", "loop", "model_side", "unit_interval"):
        row: dict[str, str | float] = {"ms": name}
        for run, timings in runs.items():
            row |= {f"{run} p{p}": timings.stages.percentile_ms(name, p) for p in (50, 99)}
        rows.append(row)
    interval = flat.wall_ms
    busy = flat.busy_ms()
    # Flat out, latents may lie unread while the Thinker is busy; that must not loosen the bound. So the way
    # back is taken from the run on the clock, where the Thinker waits for them.
    loop = sum((eager if name == "return" else flat).stages.mean_ms(name) for name in LOOP)
    bound = max(*busy.values(), loop)
    stage_sum = sum(eager.stages.percentile_ms(name, 50) for name in STAGES if name != "remember")
    return BenchResult(
        rows=rows,
        ratios={
            "interval_over_bound": interval / bound,
            "model_side_over_stage_sum": eager.stages.percentile_ms("model_side", 50) / stage_sum,
            "one_process_over_pair": one / interval,
            "boundary_over_eager_model_side": boundary.stages.percentile_ms("model_side", 50)
            / eager.stages.percentile_ms("model_side", 50),
        },
        notes=[_summary(interval, bound, busy, loop, one)],
    )


def _summary(interval: float, bound: float, busy: dict[str, float], loop: float, one: float) -> str:
    return (
        f"flat out: {interval:.2f} ms a unit, one process: {one:.2f}; bound {bound:.2f} = max of "
        f"thinker busy {busy['thinker']:.2f}, performer busy {busy['performer']:.2f}, loop {loop:.2f}"
    )


class _Measured(Timings):
    """Timings with the mean time from unit to unit over a whole run."""

    wall_ms: float = 0.0


def _run(
    family: Family[Any], link: LinkEnd, clock: Clock, pacing: Pacing, units: int, *, session: int
) -> _Measured:
    measured = _Measured(one_host=True)
    counts = Counts()
    pipeline = Pipeline(
        family=family, link=link, clock=UnitClock(family.media.unit_ms / 1000, clock),
        wakeup=link.receiver, source=_Talker(family),
        on_unit=lambda _: None, session=session, seed=1, pacing=pacing,
        timings=Timings(one_host=True), counts=counts, flat_out=isinstance(clock, FlatOutClock),
    )  # fmt: skip
    pipeline.start()
    warm_up = min(WARM_UP_UNITS, units)
    while counts.emitted < warm_up:
        pipeline.step()
    pipeline.timings = measured
    began = time.monotonic()
    while counts.emitted < warm_up + units:
        pipeline.step()
    measured.wall_ms = 1e3 * (time.monotonic() - began) / units
    while not pipeline.idle:
        pipeline.collect()
    pipeline.finish()
    return measured


def _one_process(family: Family[Any], units: int) -> float:
    """Milliseconds a unit when one process does everything."""
    talker = _Talker(family)
    users = (talker.observe() for _ in itertools.count())
    replies = reply_to(family, 1, users)
    for _ in range(min(WARM_UP_UNITS, units)):
        next(replies)
    began = time.monotonic()
    for _ in range(units):
        next(replies)
    return 1e3 * (time.monotonic() - began) / units


class _Talker:
    """A user who makes noise, moves, and types one sentence at the start."""

    def __init__(self, family: Family[Any]) -> None:
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
        return UserUnit(
            pcm=self._pcm,
            frames=self._frames,
            texts=texts,
            interrupted=False,
            epoch=0,
        )

    def observe(self) -> Observation:
        """The same for a model."""
        unit = self.take()
        return Observation(pcm=unit.pcm, frames=unit.frames, texts=unit.texts)


@contextmanager
def _performer(config_name: str, family: Family[Any]) -> Iterator[LinkEnd]:
    """A Performer process and the link to it; both end with the context."""
    config = load_config(config_name)
    with Listener("127.0.0.1", 0) as listener:
        process = multiprocessing.get_context("spawn").Process(
            target=_perform, args=(config_name, listener.port, os.getpid()), daemon=True
        )
        process.start()
        ended = threading.Event()
        threading.Thread(target=_watch, args=(process, ended), daemon=True).start()
        link = accept_performer(
            listener, terms_of(family, config, "auto"), timeout_s=JOIN_WITHIN_S, stop=ended
        )
    with link:
        yield link
    process.join(10)
    process.kill()


def _watch(process: BaseProcess, ended: threading.Event) -> None:
    process.join()
    ended.set()


def _perform(config_name: str, port: int, parent: int) -> None:
    die_with_parent(parent)
    config = load_config(config_name)
    family = load_model(config, "cpu")
    with join_thinker("127.0.0.1", port, terms_of(family, config, "auto"), timeout_s=JOIN_WITHIN_S) as link:
        perform(family, link, stopping=lambda: False)

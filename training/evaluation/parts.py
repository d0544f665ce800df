"""What an evaluation is made of: parts, each a list of jobs that know nothing of one another.

A job is one session or a few, takes the model and gives whatever its part wants to judge. Jobs run in worker
processes, so they and what they return can be pickled.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shared.config import load_config
from shared.errors import ConfigError
from shared.models.family import model_builder
from shared.models.pocket.family import PocketFamily

Job = Callable[[PocketFamily], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured."""

    sentences: int  # typed, and again with the timing of the original
    clips: int  # of the codecs
    requests: int  # that are only listened to
    other_minutes: float  # in which nothing is asked
    dialogues: int  # questions that are answered aloud
    interruptions: int
    gazes: int  # users who walk about
    scenes: int  # that are only looked at


FULL = Effort(
    sentences=85,
    clips=85,
    requests=500,
    other_minutes=40,
    dialogues=48,
    interruptions=48,
    gazes=12,
    scenes=240,
)
SHORT = Effort(
    sentences=6, clips=12, requests=40, other_minutes=3, dialogues=6, interruptions=4, gazes=2, scenes=40
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What a part measured, and single cases for whoever wants to know why."""

    measures: dict[str, float]
    cases: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One kind of measurement: `plan` makes the jobs from effort and seed, `judge` reads their results."""

    name: str
    levels: frozenset[int]
    plan: Callable[[Effort, int], list[Job]]
    judge: Callable[[list[Any]], Findings]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Which model is measured, and on what."""

    config: str
    weights: Path | None = None  # None: the config's own
    device: str = "cpu"
    threads: int = 1


@functools.cache
def load(source: Source) -> PocketFamily:
    """Build the model, once a process.

    Raises:
        ConfigError: the config is wrong, or of another family.
        CheckpointError: the weights are missing or don't fit.
    """
    torch.set_num_threads(source.threads)
    config = load_config(source.config)
    weights = source.weights or config.weights_folder()
    family = model_builder(config.family, config.model)(weights=weights, device=source.device)
    if not isinstance(family, PocketFamily):
        raise ConfigError(
            f"config {config.name}: only the family pocket is measured here, not {config.family}"
        )
    return family


def _work(source: Source, job: Job) -> Any:
    return job(load(source))


def measure(
    source: Source,
    parts: Sequence[Part],
    effort: Effort,
    *,
    seed: int,
    workers: int,
    begin: Callable[[str, int], None],
    advance: Callable[[str], None],
) -> dict[str, Findings]:
    """Run all jobs of the parts and judge them.

    Args:
        source: the model.
        parts: see there.
        effort: see there.
        seed: of sessions and of what is drawn from the held-out material.
        workers: processes; with 1 all is done in this one.
        begin: hears of each part and its number of jobs, `advance` of each job that is done.
        advance: see `begin`.
    """
    plans = {part.name: part.plan(effort, seed) for part in parts}
    for name, jobs in plans.items():
        begin(name, len(jobs))
    results: dict[str, list[Any]] = {name: [] for name in plans}
    done: Iterator[tuple[str, Any]]
    if workers == 1:
        done = ((name, _work(source, job)) for name, jobs in plans.items() for job in jobs)
    else:
        done = _spread(source, plans, workers)
    for name, result in done:
        results[name].append(result)
        advance(name)
    return {part.name: part.judge(results[part.name]) for part in parts}


def _spread(source: Source, plans: dict[str, list[Job]], workers: int) -> Iterator[tuple[str, Any]]:
    # Processes are spawned: torch's threads don't survive a fork.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures: list[tuple[str, Future[Any]]] = [
            (name, pool.submit(_work, source, job)) for name, jobs in plans.items() for job in jobs
        ]
        for name, future in futures:
            yield name, future.result()
    finally:
        pool.shutdown(cancel_futures=True)

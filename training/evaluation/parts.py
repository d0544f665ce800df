"""What an evaluation is made of: parts, each a list of jobs that know nothing of one another.

A job is one session or a few, takes the model and gives whatever its part wants to judge. Jobs run in worker
processes, so they and what they return can be pickled.
"""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.config import load_config
from shared.devices import open_device, settle_threads
from shared.errors import ConfigError
from shared.models.family import model_builder
from shared.models.pocket.family import PocketFamily
from training.errors import TrainingError
from training.evaluation.users import ASKED, Speakers, families, share_of

EvaluationJob = Callable[[PocketFamily], Any]
SENTENCES = 10  # the fewest that ask for nothing in a bank
HOSTS = ("espeak", "flite")  # synthesizers of the users that every machine that trains has
GUEST_REQUESTS = 60  # of each of the others


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialCounts:
    """How much is measured."""

    sentences: int  # typed, and again with the timing of the original
    clips: int  # of the codecs
    voices: tuple[str, ...]  # synthesizers of the users
    guests: tuple[str, ...]  # and others that only ask, where they are installed
    requests: int  # that are only listened to
    others: int  # sentences that ask for nothing
    other_minutes: float  # in which nothing is asked
    questions: int  # that are answered aloud
    interruptions: int
    talks: int  # in which nothing is asked
    gazes: int  # users who walk about
    scenes: int  # that are only looked at
    answers: int  # about scenes


FULL = TrialCounts(
    sentences=85, clips=85, voices=HOSTS, guests=("festival", "kokoro", "piper"), requests=400, others=160,
    other_minutes=40, questions=48, interruptions=48, talks=8, gazes=12, scenes=240, answers=60,
)  # fmt: skip
SHORT = TrialCounts(
    sentences=6, clips=12, voices=HOSTS, guests=(), requests=40, others=20, other_minutes=2.4, questions=6,
    interruptions=3, talks=1, gazes=1, scenes=40, answers=4,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """What a part plans its jobs from; `data` is the folder where users' voices are kept."""

    effort: TrialCounts
    seed: int
    data: Path

    def speakers(self) -> list[Speakers]:
        """Those of the synthesizers that are wanted and there."""
        effort = self.effort
        return [
            Speakers(
                folder=self.data,
                family=family,
                requests=share_of(family, effort.requests, effort.voices, least=len(ASKED)),
                others=share_of(family, effort.others, effort.voices, least=SENTENCES),
            )
            for family in families(effort.voices)
        ]

    def guests(self) -> list[Speakers]:
        """Those of the others that are there."""
        return [
            Speakers(folder=self.data, family=family, requests=GUEST_REQUESTS, others=SENTENCES)
            for family in families(self.effort.guests)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class PartResult:
    """What a part measured, and single cases for whoever wants to know why."""

    measures: dict[str, float]
    cases: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One kind of measurement: `plan` makes its jobs, `judge` reads their results in order."""

    name: str
    levels: frozenset[int]
    plan: Callable[[EvaluationConfig], list[EvaluationJob]]
    judge: Callable[[list[Any]], PartResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """Which model is measured, and on what."""

    config: str
    weights: Path | None = None  # None: the config's own
    device: str = "cpu"
    threads: int = 1


@functools.cache
def load(source: ModelSource) -> PocketFamily:
    """Build the model, once a process.

    Raises:
        ConfigError: the config is wrong, or of another family.
        CheckpointError: the weights are missing or don't fit.
    """
    settle_threads(source.threads)
    config = load_config(source.config)
    device = open_device(source.device, dtype=config.dtype)
    weights = source.weights or config.weights_folder()
    family = model_builder(config.family, config.model)(weights=weights, device=device)
    if not isinstance(family, PocketFamily):
        raise ConfigError(
            f"config {config.name}: only the family pocket is measured here, not {config.family}"
        )
    return family


def _work(source: ModelSource, job: EvaluationJob) -> Any:
    return job(load(source))


def measure(
    source: ModelSource,
    plans: Mapping[str, list[EvaluationJob]],
    *,
    workers: int,
    advance: Callable[[str], None],
) -> dict[str, list[Any]]:
    """Do all jobs of the plans, in `workers` processes (1: in this one); returns their results in order.

    `advance` hears the name of a plan whenever one of its jobs is done.
    """
    results: dict[str, list[Any]] = {name: [] for name in plans}
    done: Iterator[tuple[str, Any]]
    if workers == 1:
        done = ((name, _work(source, job)) for name, jobs in plans.items() for job in jobs)
    else:
        done = _spread(source, plans, workers)
    for name, result in done:
        results[name].append(result)
        advance(name)
    return results


def _spread(
    source: ModelSource, plans: Mapping[str, list[EvaluationJob]], workers: int
) -> Iterator[tuple[str, Any]]:
    # Processes are spawned: torch's threads don't survive a fork. Ctrl-C is for this one, which ends them.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    futures: list[tuple[str, Future[Any]]] = [
        (name, pool.submit(_work, source, job)) for name, jobs in plans.items() for job in jobs
    ]
    signal.signal(signal.SIGINT, handler)
    try:
        for name, future in futures:
            yield name, future.result()
    except BrokenProcessPool:
        raise TrainingError("a worker process was killed (out of memory?); try --workers 1") from None
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)

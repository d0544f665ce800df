"""What an evaluation is made of: parts, each a list of jobs that know nothing of one another.

A job is a few trials of one kind. Jobs run in worker processes, so they and what they return can be pickled.
"""

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
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

SENTENCES = 10  # the fewest that ask for nothing in a bank
REQUIRED = ("espeak", "flite")  # synthesizers of the users that every machine that trains has
OPTIONAL_REQUESTS = 60  # of each of the others


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialCounts:
    """How much is measured."""

    sentences: int  # typed, and again with the timing of the original
    clips: int  # of the codecs
    voices: tuple[str, ...]  # synthesizers of the users
    optional_voices: tuple[str, ...]  # and others that only ask, where they are installed
    requests: int  # that are only listened to
    unseen_requests: int  # likewise, worded as never in training
    others: int  # sentences that ask for nothing
    other_minutes: float  # in which nothing is asked
    questions: int  # that are answered aloud
    interruptions: int
    talks: int  # in which nothing is asked
    gazes: int  # users who walk about
    scenes: int  # that are only looked at
    answers: int  # about scenes


FULL = TrialCounts(
    sentences=85, clips=85, voices=REQUIRED, optional_voices=("festival", "kokoro", "piper"), requests=400,
    unseen_requests=200, others=160, other_minutes=40, questions=48, interruptions=48, talks=8, gazes=12,
    scenes=240, answers=60,
)  # fmt: skip
SHORT = TrialCounts(
    sentences=10, clips=12, voices=REQUIRED, optional_voices=(), requests=80, unseen_requests=20, others=20,
    other_minutes=4, questions=12, interruptions=6, talks=2, gazes=2, scenes=80, answers=16,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTimes:
    """Model-side time, from a unit of the user to that of the agent, of a session of the two processes."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """What a part plans its jobs from; `data` is the folder where users' voices are kept."""

    counts: TrialCounts
    seed: int
    data: Path
    pair: PairTimes

    def speakers(self, *, unseen_wordings: bool = False) -> list[Speakers]:
        """Those of the synthesizers that are wanted and there, with what they say spoken."""
        counts = self.counts
        requests = counts.unseen_requests if unseen_wordings else counts.requests
        return [
            Speakers.speak(
                self.data,
                family,
                requests=share_of(family, requests, counts.voices, least=len(ASKED)),
                others=SENTENCES
                if unseen_wordings
                else share_of(family, counts.others, counts.voices, least=SENTENCES),
                unseen_wordings=unseen_wordings,
            )
            for family in families(counts.voices)
        ]

    def optional_speakers(self) -> list[Speakers]:
        """Those of the others that are there."""
        return [
            Speakers.speak(self.data, family, requests=OPTIONAL_REQUESTS, others=SENTENCES)
            for family in families(self.counts.optional_voices)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationJob:
    """Some trials of one kind, done by one process: `do` gives one result for each of `trials`."""

    kind: str
    trials: int
    do: Callable[[PocketFamily], Sequence[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What came out of one trial."""

    kind: str
    result: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One kind of measurement: `plan` makes its jobs, `judge` turns their trials into measures.

    `case` is what a trial leaves in the JSON for whoever wants to know why; None if there is nothing to tell.
    """

    name: str
    levels: frozenset[int]
    plan: Callable[[EvaluationConfig], list[EvaluationJob]]
    judge: Callable[[list[Trial], EvaluationConfig], dict[str, float]]
    cases: Callable[[Trial], list[dict[str, Any]]] = lambda _: []


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


def _work(source: ModelSource, job: EvaluationJob) -> list[Trial]:
    results = [Trial(kind=job.kind, result=result) for result in job.do(load(source))]
    assert len(results) == job.trials, f"{job.kind}: {len(results)} of {job.trials}"
    return results


def measure(
    source: ModelSource,
    plans: Mapping[str, list[EvaluationJob]],
    *,
    workers: int,
    advance: Callable[[str], None],
) -> dict[str, list[Trial]]:
    """Do all jobs of the plans, in `workers` processes (1: in this one); returns their trials in order.

    `advance` hears the name of a plan whenever one of its jobs is done.
    """
    results: dict[str, list[Trial]] = {name: [] for name in plans}
    done: Iterator[tuple[str, list[Trial]]]
    if workers == 1:
        done = ((name, _work(source, job)) for name, jobs in plans.items() for job in jobs)
    else:
        done = _spread(source, plans, workers)
    for name, trials in done:
        results[name] += trials
        advance(name)
    return results


def _spread(
    source: ModelSource, plans: Mapping[str, list[EvaluationJob]], workers: int
) -> Iterator[tuple[str, list[Trial]]]:
    # Processes are spawned: torch's threads don't survive a fork. Ctrl-C is for this one, which ends them.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    futures: list[tuple[str, Future[list[Trial]]]] = [
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

"""Who says what: voices and sentences of a bank, drawn before anything is spoken."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shared.models.pocket.dialogue.replies import Request
from training.data.split import Split
from training.data.voices.requests import NEAR_MISSES, UNSEEN_NEAR_MISSES, begins_or_ends_as_request, wording
from training.data.voices.sentences import everyday, prose, split_of
from training.data.voices.speakers import SHARES, Voice, installed
from training.errors import TrainingError

NEAR_SHARE, PROSE_SHARE = 0.25, 0.5  # of the utterances that ask for nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class UtteranceJob:
    """What one voice is to say."""

    voice: Voice
    text: str
    request: Request
    near_miss: bool


def plan(
    requests: int,
    others: int,
    seed: int,
    families: tuple[str, ...],
    split: Split,
    *,
    unseen_wordings: bool = False,
) -> list[UtteranceJob]:
    """Who says what: each family has its share; requests, and voices of a family, are equally likely.

    Voices and sentences are those of the split; requests are worded as in training, or as never there.

    Raises:
        TrainingError: none of the families is installed.
    """
    rng = np.random.default_rng([seed, list(Split).index(split), requests, others])
    asked = [Request(1 + index % (len(Request) - 1)) for index in range(requests)]
    said = [(wording(request, rng, unseen=unseen_wordings), request, False) for request in asked]
    said += [(text, Request.NONE, near) for text, near in nothing_asked(others, rng, split)]
    by_family = installed(held_out=split.held_out)
    here = sorted(set(families) & by_family.keys())
    if not here:
        raise TrainingError(f"none of the voices {families} is installed: see training/data/voices")
    share = np.array([SHARES[family] for family in here])
    drawn = rng.choice(len(here), size=len(said), p=share / share.sum())
    jobs = []
    for (text, request, near), index in zip(said, drawn, strict=True):
        voices = by_family[here[int(index)]]
        voice = voices[int(rng.integers(len(voices)))]
        jobs.append(UtteranceJob(voice=voice, text=text, request=request, near_miss=near))
    return [jobs[index] for index in rng.permutation(len(jobs))]


def nothing_asked(count: int, rng: np.random.Generator, split: Split) -> Iterator[tuple[str, bool]]:
    """`count` sentences that ask for nothing, and whether each resembles a request."""
    book = [s for s in prose() if split_of(s) is split and not begins_or_ends_as_request(s)]
    near_misses = UNSEEN_NEAR_MISSES if split is Split.JUDGE else NEAR_MISSES
    talk = random.Random(int(rng.integers(2**32)))
    for kind in rng.random(count):
        if kind < NEAR_SHARE:
            yield str(rng.choice(near_misses)), True
        elif kind < NEAR_SHARE + PROSE_SHARE:
            yield book[int(rng.integers(len(book)))], False
        else:
            yield _small_talk(talk, split), False


def _small_talk(rng: random.Random, split: Split) -> str:
    while True:
        sentence = everyday(rng)
        if split_of(sentence) is split and not begins_or_ends_as_request(sentence):
            return sentence

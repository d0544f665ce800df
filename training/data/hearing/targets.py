"""What the listener should perceive in every frame of 40 ms, given who said what and when."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.speech.phones import PHONE_IDS, PHONES, SILENCE
from training.data.noise.synth import RATE, Sound

FRAME = 640  # samples, 40 ms
ANSWER_FROM_S, ANSWER_UNTIL_S = 0.08, 0.60  # frames that end so long after a request hold its id
UNSURE_BEFORE_S = (
    0.10  # frames that end so shortly before the request does, or before ANSWER_FROM_S, don't count
)
RUN_ON_S = 0.20  # speech that goes on so soon is the same utterance still
NOTICED_S = 0.08  # new speech ends the time to answer so long after it begins
DONT_CARE = -1
PAUSE_BLOCK, PAUSE_BLOCKS = 160, 16  # silence of 160 ms and more inside an utterance isn't voice
PAUSE_LEVEL = 0.03  # of the utterance's RMS
UNKNOWN = len(PHONES)


class LabelledSpeech(Protocol):
    """One utterance: sound [N] in [-1, 1] without silence around it; (phone, end in s) if they are known."""

    @property
    def pcm(self) -> Sound:
        """Sound [N] at 16 kHz."""

    @property
    def phones(self) -> list[tuple[str, float]] | None:
        """ARPAbet phones with their ends."""

    @property
    def request(self) -> Request:
        """What it asks; NONE for anything else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """An utterance of the user that begins at sample `start` of a scene."""

    spoken: LabelledSpeech
    start: int

    @property
    def end(self) -> int:
        """The sample after its last."""
        return self.start + len(self.spoken.pcm)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpokenEvent:
    """Something said, in seconds of the scene; `request` is NONE unless it has to be answered."""

    request: Request
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """Of F frames: voice [F] float32 (share of the frame), request and phones [F] int64 (-1: don't care)."""

    voice: NDArray[np.float32]
    request: NDArray[np.int64]
    phones: NDArray[np.int64]
    events: tuple[SpokenEvent, ...]


def targets(said: Sequence[Placed], num: int) -> Targets:
    """Targets of a scene of `num` samples (a multiple of 640) with the user's utterances in order of time."""
    voice = np.zeros(num, np.float32)
    ids = np.full(num, SILENCE, np.int16)
    for placed in said:
        end = min(placed.end, num)
        voice[placed.start : end] = sounding(placed.spoken.pcm)[: end - placed.start]
        ids[placed.start : end] = _phone_ids(placed.spoken)[: end - placed.start]
    request, events = _requests(said, num)
    return Targets(
        voice=voice.reshape(-1, FRAME).mean(1),
        request=request,
        phones=_most_of_each(ids),
        events=tuple(events),
    )


def sounding(pcm: Sound) -> Sound:
    """1 where an utterance [N] sounds and 0 in its longer pauses, [N]."""
    blocks = -(-len(pcm) // PAUSE_BLOCK)
    padded = np.pad(pcm, (0, blocks * PAUSE_BLOCK - len(pcm))).reshape(blocks, PAUSE_BLOCK)
    power = np.einsum("nb,nb->n", padded, padded) / PAUSE_BLOCK
    loud = np.flatnonzero(power > PAUSE_LEVEL**2 * power.mean())
    mask = np.ones(blocks, np.float32)
    for last, following in itertools.pairwise(loud):
        if following - last - 1 >= PAUSE_BLOCKS:
            mask[last + 1 : following] = 0
    return np.repeat(mask, PAUSE_BLOCK)[: len(pcm)]


def _requests(said: Sequence[Placed], num: int) -> tuple[NDArray[np.int64], list[SpokenEvent]]:
    ends = (np.arange(num // FRAME) + 1) * FRAME
    request = np.zeros(len(ends), np.int64)
    events = []
    for index, placed in enumerate(said):
        following = said[index + 1].start if index + 1 < len(said) else math.inf
        finished = following - placed.end >= RUN_ON_S * RATE
        asked = placed.spoken.request
        first, last = placed.end + ANSWER_FROM_S * RATE, placed.end + ANSWER_UNTIL_S * RATE
        if asked and placed.end <= num:
            request[(ends > placed.end - UNSURE_BEFORE_S * RATE) & (ends < first)] = DONT_CARE
            if finished:
                request[(ends >= first) & (ends <= min(last, following + NOTICED_S * RATE))] = asked
        answer = asked if finished and last <= num else Request.NONE
        end_s = min(placed.end, num) / RATE
        events.append(SpokenEvent(request=answer, start_s=placed.start / RATE, end_s=end_s))
    return request, events


def _phone_ids(spoken: LabelledSpeech) -> NDArray[np.int16]:
    num = len(spoken.pcm)
    if spoken.phones is None:
        return np.full(num, UNKNOWN, np.int16)
    ends = np.minimum([round(end * RATE) for _, end in spoken.phones], num)
    counts = np.diff(ends, prepend=0)
    ids = np.repeat(np.array([PHONE_IDS[name] for name, _ in spoken.phones], np.int16), counts)
    return np.pad(ids, (0, num - len(ids)))


def _most_of_each(ids: NDArray[np.int16]) -> NDArray[np.int64]:
    """The id that fills most of each frame, looked at every 2.5 ms; -1 where it's unknown."""
    seen = ids.reshape(-1, FRAME)[:, ::40]
    counts = (seen[:, :, None] == np.arange(UNKNOWN + 1)).sum(1)
    most = counts.argmax(1)
    return np.where(most == UNKNOWN, DONT_CARE, most)

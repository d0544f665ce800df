"""The users of an evaluation: voices that no training heard, asking and talking in rooms drawn anew.

Every synthesizer has a bank of its own, so that a machine which lacks one measures the others alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.models.family import UserUnit
from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.family import PocketFamily
from training.data.hearing.scenes import COMMON, SNR_DB, VOICE_DB, AudioScene, scene_of, voiced
from training.data.hearing.targets import FRAME, Placed
from training.data.noise.acoustics import captured, faint_noise, impulse_response, worn
from training.data.noise.background import background
from training.data.noise.synth import RATE, decibels
from training.data.split import Split
from training.data.voices.bank import UtteranceBank, load_bank
from training.data.voices.speakers import SHARES, UserUtterance, installed

BANK_SEED = 4711  # of what is said and how: fixed, so that two evaluations hear the same
UNIT_S = 0.16
UNIT_SAMPLES = 2560
ASKED = [request for request in Request if request]


def families(wanted: tuple[str, ...]) -> list[str]:
    """Which of the synthesizers are on this machine.

    Raises:
        TrainingError: flite or espeak-ng is missing.
    """
    here = installed(held_out=True)
    return [family for family in wanted if family in here]


def share_of(family: str, count: int, wanted: tuple[str, ...], *, least: int) -> int:
    """How many of `count` utterances a synthesizer says, a multiple of `least`.

    It is the same whether or not the others that are wanted are there.
    """
    share = count * SHARES[family] / sum(SHARES[name] for name in wanted)
    return least * max(1, round(share / least))


@dataclass(frozen=True, kw_only=True, slots=True)
class Speakers:
    """The unseen voices of one synthesizer, and the folder that holds what they say."""

    family: str
    folder: Path
    requests: tuple[int, ...]  # ids of what is asked; jobs are planned from these

    @classmethod
    def speak(
        cls, data: Path, family: str, *, requests: int, others: int, unseen_wordings: bool = False
    ) -> Speakers:
        """Let them speak, unless they did before: all requests in turn, and other sentences.

        Raises:
            TrainingError: see `load_bank`.
        """
        bank = load_bank(
            data, requests=requests, others=others, seed=BANK_SEED, split=Split.JUDGE, families=(family,),
            unseen_wordings=unseen_wordings,
        )  # fmt: skip
        return cls(family=family, folder=bank.folder, requests=tuple(bank.requests.tolist()))

    def bank(self) -> UtteranceBank:
        """Their utterances."""
        return UtteranceBank.read(self.folder)


def asking(bank: UtteranceBank, request: Request | None = None) -> list[int]:
    """Indices of all utterances that ask something, or that ask for `request`."""
    chosen = bank.requests != 0 if request is None else bank.requests == request
    return np.flatnonzero(chosen).tolist()


def in_turn(
    spoken: list[UserUtterance],
    rng: np.random.Generator,
    *,
    first_s: tuple[float, float],
    pause_s: tuple[float, float],
) -> list[Placed]:
    """Utterances one after the other; pauses are drawn evenly on a logarithmic scale."""
    placed: list[Placed] = []
    start = int(rng.uniform(*first_s) * RATE)
    for utterance in spoken:
        placed.append(Placed(spoken=utterance, start=start))
        start = placed[-1].end + int(np.exp(rng.uniform(*np.log(pause_s))) * RATE)
    return placed


def staged(rng: np.random.Generator, said: list[Placed], *, tail_s: float) -> AudioScene:
    """A scene of whole units in which this is said, and nothing else but `tail_s` of noise after it.

    Gain, room, noise, microphone and its faults are drawn as for training (`training.data.hearing.scenes`).
    """
    units = int(np.ceil((said[-1].end / RATE + tail_s) / UNIT_S))
    num = units * UNIT_SAMPLES
    assert num % FRAME == 0
    level_db = rng.uniform(*VOICE_DB)
    room = impulse_response(rng) if rng.random() < COMMON.room else None
    if rng.random() < COMMON.quiet:
        noise = faint_noise(rng, num)
    else:
        noise = background(rng, num) * np.float32(decibels(level_db - rng.triangular(*SNR_DB)))
    sources = [(voiced(said, rng, num, level_db), room), (noise, None)]
    return scene_of(worn(rng, captured(rng, sources)), said)


def observations(
    family: PocketFamily, pcm_N: NDArray[np.float32], frames_THWC: NDArray[np.uint8] | None = None
) -> Iterator[UserUnit]:
    """Whole units of the user; without pictures the camera is off."""
    media = family.media
    for unit in range(len(pcm_N) // UNIT_SAMPLES):
        if frames_THWC is None:
            frames = np.zeros((media.frames_per_unit, media.input_height, media.input_width, 3), np.uint8)
        else:
            frames = frames_THWC[unit * media.frames_per_unit : (unit + 1) * media.frames_per_unit]
        yield UserUnit(pcm=pcm_N[unit * UNIT_SAMPLES : (unit + 1) * UNIT_SAMPLES], frames=frames)

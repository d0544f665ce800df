"""Scenes to learn listening from: what a user's microphone hears, with what there is to perceive in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from training.data.hearing.targets import (
    ANSWER_UNTIL_S,
    FRAME,
    RUN_ON_S,
    LabelledSpeech,
    Placed,
    SpokenEvent,
    targets,
)
from training.data.noise.acoustics import captured, faint_noise, far_room, impulse_response, worn
from training.data.noise.background import background
from training.data.noise.synth import RATE, Sound, add_at, decibels, rms
from training.errors import TrainingError

FIRST_S = (0.3, 2.0)
PAUSE_S = (0.3, 4.0)
SHORT_PAUSE_S = (0.25, 0.8)
VOICE_DB = (-38.0, -12.0)  # RMS of an utterance, dBFS
LOUDER_DB = 3.0  # one utterance against the next
SNR_DB = (3.0, 22.0, 40.0)  # least, most often, most
ALONE_DB = (-55.0, -14.0)  # background without a user
OTHERS_DB = (-30.0, -15.0)  # other people, against the user
ECHO_DB = (-45.0, -25.0)  # the agent's own voice out of the loudspeaker, against the user


class UtteranceSource(Protocol):
    """Utterances to draw from; `requests` [n] and `voices` [n] say what each asks and who speaks."""

    @property
    def requests(self) -> NDArray[np.integer[Any]]:
        """Request id of each utterance, 0 for none."""

    @property
    def voices(self) -> NDArray[np.str_]:
        """Name of each utterance's voice."""

    def __len__(self) -> int: ...

    def utterance(self, index: int, /) -> LabelledSpeech:
        """One of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Odds:
    """How often a scene has what."""

    no_user: float = 0.12
    request: float = 0.6  # of utterances; the others are sentences that aren't to be answered
    short_pause: float = 0.25
    run_on: float = 0.05
    cut_off: float = 0.4  # of utterances that reach the end of the scene; without it they aren't begun
    other_speaker: float = 0.05
    others: float = 0.2
    echo: float = 0.15
    room: float = 0.7
    quiet: float = 0.15
    faults: float = 1.0  # scales `rooms.worn`


@dataclass(frozen=True, kw_only=True, slots=True)
class AudioScene:
    """Sound [F * 640] at 16 kHz in [-1, 1] and, for each frame of 40 ms, what `targets.Targets` says."""

    pcm: Sound
    voice: NDArray[np.float32]
    request: NDArray[np.int64]
    phones: NDArray[np.int64]
    events: tuple[SpokenEvent, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneBatch:
    """B scenes of one length: pcm [B, F * 640], voice, request and phones [B, F]."""

    pcm: Sound
    voice: NDArray[np.float32]
    request: NDArray[np.int64]
    phones: NDArray[np.int64]


COMMON = Odds()


def compose(
    bank: UtteranceSource,
    rng: np.random.Generator,
    *,
    seconds: float = 8.0,
    odds: Odds = COMMON,
    echoes: Sequence[Sound] = (),
) -> AudioScene:
    """One random scene, rounded to whole frames; `echoes` are sentences in the agent's own voice.

    Raises:
        TrainingError: the bank lacks requests, or sentences that ask for nothing.
    """
    num = round(seconds * RATE / FRAME) * FRAME
    said = [] if rng.random() < odds.no_user else script(bank, rng, num, odds)
    level_db = rng.uniform(*VOICE_DB)
    room = impulse_response(rng) if rng.random() < odds.room else None
    sources = [(voiced(said, rng, num, level_db), room)]
    if rng.random() < odds.others:
        few = 1 if said else 3  # one distant voice alone could be a quiet user
        people = [script(bank, rng, num, odds) for _ in range(rng.integers(few, few + 5))]
        sources.append((_far(people, rng, num, level_db + rng.uniform(*OTHERS_DB)), far_room(rng)))
    if echoes and rng.random() < odds.echo:
        sources.append((_echo(echoes, rng, num, level_db + rng.uniform(*ECHO_DB)), far_room(rng)))
    noise_db = level_db - rng.triangular(*SNR_DB) if said else rng.uniform(*ALONE_DB)
    noise = faint_noise(rng, num)
    if rng.random() >= odds.quiet:
        noise += background(rng, num) * np.float32(decibels(noise_db))
    sources.append((noise, None))
    return scene_of(worn(rng, captured(rng, sources), faults=odds.faults), said)


def compose_batch(
    bank: UtteranceSource,
    rng: np.random.Generator,
    size: int,
    seconds: float = 8.0,
    *,
    odds: Odds = COMMON,
    echoes: Sequence[Sound] = (),
) -> SceneBatch:
    """`size` random scenes, stacked."""
    scenes = [compose(bank, rng, seconds=seconds, odds=odds, echoes=echoes) for _ in range(size)]
    return SceneBatch(
        pcm=np.stack([s.pcm for s in scenes]),
        voice=np.stack([s.voice for s in scenes]),
        request=np.stack([s.request for s in scenes]),
        phones=np.stack([s.phones for s in scenes]),
    )


def scene_of(pcm: Sound, said: Sequence[Placed]) -> AudioScene:
    """A sound with the targets of what the user says in it."""
    wanted = targets(said, len(pcm))
    return AudioScene(
        pcm=pcm, voice=wanted.voice, request=wanted.request, phones=wanted.phones, events=wanted.events
    )


def script(bank: UtteranceSource, rng: np.random.Generator, num: int, odds: Odds) -> list[Placed]:
    """What one user says in `num` samples, and when: mostly one voice, now and then cut off by the end.

    An utterance that would end too late for its answer to fit is not begun.
    """
    said: list[Placed] = []
    own = bank.voices == bank.voices[rng.integers(len(bank))]
    anyone = np.ones(len(bank), np.bool_)
    asking = bank.requests != 0
    start = int(rng.uniform(*FIRST_S) * RATE)
    room_for_answer = int(ANSWER_UNTIL_S * RATE)
    while start < num:
        who = anyone if rng.random() < odds.other_speaker else own
        if rng.random() < odds.request:
            spoken = pick(bank, rng, asking, who, "requests")
        else:
            spoken = pick(bank, rng, ~asking, who, "sentences that ask for nothing")
        placed = Placed(spoken=spoken, start=start)
        if placed.end > num - room_for_answer and (placed.end <= num or rng.random() >= odds.cut_off):
            break
        said.append(placed)
        start = placed.end + int(_pause_s(rng, odds) * RATE)
    return said


def pick(
    bank: UtteranceSource,
    rng: np.random.Generator,
    fitting: NDArray[np.bool_],
    own: NDArray[np.bool_],
    what: str,
) -> LabelledSpeech:
    """A random one of the `fitting` utterances [n], by a speaker whose `own` [n] they are, if any is.

    Raises:
        TrainingError: no utterance is fitting; `what` names what is missing.
    """
    both = np.flatnonzero(fitting & own)
    choice = both if len(both) else np.flatnonzero(fitting)
    if not len(choice):
        raise TrainingError(f"the bank of {len(bank)} utterances has no {what}: make a larger one")
    return bank.utterance(int(rng.choice(choice)))


def _pause_s(rng: np.random.Generator, odds: Odds) -> float:
    chance = rng.random()
    if chance < odds.run_on:
        return float(rng.uniform(0.03, RUN_ON_S - 0.02))
    if chance < odds.run_on + odds.short_pause:
        return float(rng.uniform(*SHORT_PAUSE_S))
    return float(np.exp(rng.uniform(*np.log(PAUSE_S))))


def voiced(said: Sequence[Placed], rng: np.random.Generator, num: int, level_db: float) -> Sound:
    """The utterances alone [num], each at about `level_db` (RMS, dBFS)."""
    track = np.zeros(num, np.float32)
    for placed in said:
        gain = decibels(level_db + rng.uniform(-LOUDER_DB, LOUDER_DB)) / max(rms(placed.spoken.pcm), 1e-6)
        add_at(track, placed.start, placed.spoken.pcm * np.float32(gain))
    return track


def _echo(echoes: Sequence[Sound], rng: np.random.Generator, num: int, level_db: float) -> Sound:
    """The agent's own sentences [num], at any time and each at `level_db`."""
    track = np.zeros(num, np.float32)
    start = int(rng.uniform(0, num))
    while start < num:
        pcm = echoes[int(rng.integers(len(echoes)))]
        add_at(track, start, pcm * np.float32(decibels(level_db) / max(rms(pcm), 1e-6)))
        start += len(pcm) + int(rng.uniform(*PAUSE_S) * RATE)
    return track


def _far(people: list[list[Placed]], rng: np.random.Generator, num: int, level_db: float) -> Sound:
    """Several people's talk [num], together at about `level_db`."""
    each_db = level_db - 10 * np.log10(len(people))
    track = np.zeros(num, np.float32)
    for said in people:
        track += voiced(said, rng, num, each_db)
    return track

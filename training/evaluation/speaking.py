"""Measure the pocket model as a user meets it: type sentences that no training saw, listen and look.

Words are counted by a speech recogniser, on the agent's voice, on the voice that it learned from and on the
audio codec alone. Lips are compared with the drawn face saying the same phones at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from shared.models.family import Observation
from shared.models.pocket.config import PHONE_LEAD
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.phones import PHONES, SILENCE
from shared.models.pocket.speech import Speech, duration_draws
from shared.models.single import reply_to
from training import audio_codec, video_codec
from training.data.face import LIP, MOUTH, draw
from training.data.motion import poses
from training.data.sentences import prose
from training.data.speech import Utterance
from training.errors import TrainingError
from training.recogniser import recognise, word_errors

IDLE_UNITS = 62  # 10 s in which nothing was typed yet
STILL_UNITS = 6  # without a phone: longer than any pause within a sentence
TAIL_UNITS = 2  # of sound after the last phone that the recogniser still gets
FRAME_S = 0.04
LAGS = range(-6, 7)  # frames
# The middle of the mouth (rows, columns in shares of the picture): nothing dark but the mouth gets there.
MOUTH_ROWS, MOUTH_COLUMNS = (0.55, 0.72), (0.41, 0.59)
FLOOR_DB = -100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What the agent did from one typed line to the next: U units of sound [U, N] and mouths [U, 4]."""

    pcm: NDArray[np.float32]
    openings: NDArray[np.float64]
    phones: tuple[tuple[int, ...], ...]  # the slots of each unit

    @property
    def spoken_units(self) -> int:
        """Units up to the last phone."""
        return max((i + 1 for i, p in enumerate(self.phones) if any(x != SILENCE for x in p)), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """How one sentence was heard: by the recogniser, and how many of its words were wrong."""

    said: str
    heard: str
    words: int
    errors: int
    errors_original: int
    errors_codec: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """All measures, and the sentences behind them."""

    measures: dict[str, float]
    sentences: list[Sentence]


def judge(
    family: PocketFamily, held_out: list[Utterance], *, seed: int, tell: Callable[[str], None]
) -> Verdict:
    """Let the agent say each sentence in one session and measure; `tell` hears of the progress."""
    idle, turns = converse(family, [u.sentence for u in held_out], seed, tell)
    sentences = []
    for utterance, turn in zip(held_out, turns, strict=True):
        sentences.append(listen(family, utterance, turn))
        tell(f"heard: {sentences[-1].heard}")
    measures = {
        **word_error_rates(sentences),
        **silence_levels(idle, turns),
        **lip_sync(turns, family.media.height),
        **codec_quality(family, held_out),
    }
    return Verdict(measures=measures, sentences=sentences)


def converse(
    family: PocketFamily, sentences: list[str], seed: int, tell: Callable[[str], None]
) -> tuple[Turn, list[Turn]]:
    """Wait ten seconds, then type the sentences one after the other, each when the agent is done.

    Returns:
        The wait and the turns.

    Raises:
        TrainingError: a sentence is refused, so there is nothing in it to say.
    """
    typed: list[str] = []
    media = family.media
    pcm = np.zeros(media.input_rate * media.unit_ms // 1000, np.float32)
    dark = np.zeros((media.frames_per_unit, media.input_height, media.input_width, 3), np.uint8)

    def user() -> Iterator[Observation]:
        while True:
            texts = tuple(typed)
            typed.clear()
            yield Observation(pcm=pcm, frames=dark, texts=texts)

    replies = reply_to(family, seed, user())
    slots = _Slots(family, seed)

    def turn(text: str, still_units: int) -> Turn:
        typed.extend([text] if text else [])
        sound, openings, phones, still = [], [], [], 0
        while still < still_units:
            texts = tuple(typed)
            reply = next(replies)
            if reply.said.refused:
                raise TrainingError(f"judge: the agent refused to say {reply.said.refused[0]!r}")
            phones.append(slots.advance(texts))
            assert any(phones[-1]) == reply.said.speaking, "the slots differ from those of the family"
            sound.append(reply.emission.pcm.astype(np.float32) / 32768.0)
            openings.append([opening(frame) for frame in reply.emission.frames])
            still = 0 if reply.said.speaking else still + 1
        return Turn(pcm=np.stack(sound), openings=np.array(openings), phones=tuple(phones))

    idle = turn("", IDLE_UNITS)
    turns = []
    for number, sentence in enumerate(sentences, start=1):
        turns.append(turn(sentence, STILL_UNITS))
        tell(f"said {number}/{len(sentences)}: {sentence}")
    return idle, turns


class _Slots:
    """The phone slots of a session, which the family keeps to itself: the same pointer with the same seed."""

    def __init__(self, family: PocketFamily, seed: int) -> None:
        self.timer, self.seed = family.weights.timer, seed
        self.speech, self.unit = Speech(), 0

    def advance(self, texts: tuple[str, ...]) -> tuple[int, ...]:
        """The phones of the next unit, after these lines were typed."""
        for text in texts:
            self.speech.say(text)
        generator = duration_draws(self.seed, self.unit)
        self.unit += 1
        return self.speech.advance(self.timer, generator).phones


def listen(family: PocketFamily, utterance: Utterance, turn: Turn) -> Sentence:
    """Count the recogniser's errors on the agent's voice, on the original and on the codec alone."""
    pcm = turn.pcm[: turn.spoken_units + TAIL_UNITS].ravel()
    codec = audio_codec.reconstruct(family.weights.audio, utterance.pcm)
    heard, *others = (recognise(x) for x in (pcm, utterance.pcm, codec))
    errors, words = word_errors(heard, utterance.sentence)
    original, after_codec = (word_errors(x, utterance.sentence)[0] for x in others)
    return Sentence(
        said=utterance.sentence, heard=heard, words=words,
        errors=errors, errors_original=original, errors_codec=after_codec,
    )  # fmt: skip


def word_error_rates(sentences: Sequence[Sentence]) -> dict[str, float]:
    """Errors per hundred words; the halves tell whether the voice wears off within the session.

    Unseen small talk shares its patterns with what was trained on, unseen prose shares nothing.
    """
    half, book = len(sentences) // 2, set(prose())
    read = [s for s in sentences if s.said in book]
    chat = [s for s in sentences if s.said not in book]

    def rate(errors: int, of: Sequence[Sentence]) -> float:
        return 100 * errors / max(1, sum(s.words for s in of))

    rates = {
        "wer_agent": rate(sum(s.errors for s in sentences), sentences),
        "wer_agent_small_talk": rate(sum(s.errors for s in chat), chat),
        "wer_agent_prose": rate(sum(s.errors for s in read), read),
        "wer_original": rate(sum(s.errors_original for s in sentences), sentences),
        "wer_codec": rate(sum(s.errors_codec for s in sentences), sentences),
        "wer_agent_first_half": rate(sum(s.errors for s in sentences[:half]), sentences[:half]),
        "wer_agent_second_half": rate(sum(s.errors for s in sentences[half:]), sentences[half:]),
    }
    return rates | {"wer_over_original": rates["wer_agent"] - rates["wer_original"]}


def silence_levels(idle: Turn, turns: Sequence[Turn]) -> dict[str, float]:
    """Level in dBFS (RMS, floor -100) before the first line and after each, and of the loudest such unit."""
    # Half a second after the last phone nothing rings any more; the rest of a turn is silence.
    after = [turn.pcm[turn.spoken_units + 3 :] for turn in turns]
    quiet = np.concatenate([idle.pcm, *after])
    return {
        "silence_before_dbfs": decibels(idle.pcm),
        "silence_after_dbfs": decibels(np.concatenate(after)),
        "silence_loudest_unit_dbfs": max(decibels(unit) for unit in quiet),
    }


def decibels(pcm: NDArray[np.float32]) -> float:
    """RMS level of sound in [-1, 1], in dB below full scale."""
    power = float(np.mean(pcm.astype(np.float64) ** 2))
    return max(FLOOR_DB, 10 * float(np.log10(power + 1e-12)))


def opening(frame: NDArray[np.uint8]) -> float:
    """How much of the inside of the mouth shows in a frame [H, W, 3]: dark pixels, as a share of the box."""
    height, width = frame.shape[:2]
    rows = slice(round(MOUTH_ROWS[0] * height), round(MOUTH_ROWS[1] * height))
    columns = slice(round(MOUTH_COLUMNS[0] * width), round(MOUTH_COLUMNS[1] * width))
    red = frame[rows, columns, 0].astype(np.float64)  # what tells the mouth from lips, skin, teeth and tongue
    return float(np.clip((LIP[0] - red) / (LIP[0] - MOUTH[0]), 0, 1).mean())


def lip_sync(turns: Sequence[Turn], size: int) -> dict[str, float]:
    """Correlation of the agent's mouth with the drawn one, at no lag and at the best lag.

    A positive best lag (in frames of 40 ms) means that the agent's lips are late.
    """
    pairs = []
    for turn in turns:
        units = turn.spoken_units + 1
        expected = drawn_openings([p for unit in turn.phones[:units] for p in unit], size)
        pairs.append((turn.openings[:units].ravel(), expected))
    at = {lag: _correlation(pairs, lag) for lag in LAGS}
    best = max(at, key=lambda lag: at[lag])
    return {"lip_correlation": at[0], "lip_correlation_best": at[best], "lip_best_lag_frames": best}


def drawn_openings(slots: Sequence[int], size: int) -> NDArray[np.float64]:
    """The mouth of the drawn face for F phone slots, which run ahead of what is heard and seen."""
    sounding = ([SILENCE] * PHONE_LEAD + list(slots))[: len(slots)]
    phones = [(PHONES[phone], FRAME_S * (frame + 1)) for frame, phone in enumerate(sounding)]
    chosen = poses(phones, len(slots), np.random.default_rng(0))
    return np.array([opening(draw(pose, size)) for pose in chosen])


def _correlation(pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], lag: int) -> float:
    """Of all pairs (made, expected) put together, with `made` taken `lag` frames later; 0 if one is flat."""
    late, early = max(lag, 0), max(-lag, 0)
    made = np.concatenate([x[late : len(x) - early] for x, _ in pairs])
    expected = np.concatenate([y[early : len(y) - late] for _, y in pairs])
    if min(made.std(), expected.std()) < 1e-9:
        return 0.0
    return float(np.corrcoef(made, expected)[0, 1])


def codec_quality(family: PocketFamily, held_out: list[Utterance]) -> dict[str, float]:
    """PSNR in dB of the video codec on the drawn face saying the sentences: whole, mouth, eyes."""
    codec = family.weights.video
    real = video_codec.test_clips(held_out, codec.config.height)
    made = [video_codec.reconstruct(codec, clip[None].to(family.device)).cpu() for clip in real]
    return video_codec.quality(torch.cat(made), real)

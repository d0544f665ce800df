"""Levels 0 to 2: silence, the codecs, and speech from forced phones and from typed lines.

Words are counted by a speech recogniser, on the agent's voice, on the voice that it learned from and on the
audio codec alone.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.config import FRAMES_PER_UNIT, PHONE_LEAD
from shared.models.pocket.family import PocketFamily
from training import audio_codec, video_codec
from training.data.split import Split
from training.data.voices.agent import AgentUtterance, speak
from training.data.voices.phones import slots_of
from training.data.voices.sentences import corpus, prose
from training.errors import TrainingError
from training.evaluation.conversation import Conversation, ScriptedSpeech, nobody, sound_of
from training.evaluation.lips import Pair, drawn_openings, lip_sync, opening
from training.evaluation.parts import EvaluationConfig, EvaluationJob, Part, Trial
from training.evaluation.recogniser import recognise, word_errors
from training.evaluation.signals import decibels
from training.timing import examples

CORPUS_SEED, CORPUS = 3, 120  # always the same, some of them twice
SENTENCES_A_JOB = 7
IDLE_UNITS = 62  # 10 s in which nothing was typed yet
STILL_UNITS = 6  # without a phone: longer than any pause within a sentence
TAIL_UNITS = 2  # of sound after the last phone that the recogniser still gets
RINGING_UNITS = 3  # after the last phone, half a second: then it must be silent
FRAME_SAMPLES = 640


@dataclass(frozen=True, kw_only=True, slots=True)
class SpokenTurn:
    """What the agent did from one typed line to the next: U units of sound [U, N], and which speak."""

    pcm: NDArray[np.float32]
    speaking: tuple[bool, ...]

    @property
    def spoken_units(self) -> int:
        """Units up to the last phone."""
        return max((i + 1 for i, speaks in enumerate(self.speaking) if speaks), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """How one sentence was heard by the recogniser, and how many of its words were wrong."""

    said: str
    heard: str
    words: int
    errors: int
    errors_original: int
    errors_codec: int


def judged_sentences(count: int) -> list[str]:
    """Sentences to judge by."""
    return list(dict.fromkeys(corpus(CORPUS, CORPUS_SEED, Split.JUDGE)))[:count]


def _batches(sentences: Sequence[str]) -> list[Sequence[str]]:
    """Evenly filled lists of at most SENTENCES_A_JOB, with small talk and prose in each."""
    jobs = math.ceil(len(sentences) / SENTENCES_A_JOB)
    return [sentences[first::jobs] for first in range(jobs)]


# Level 0: the codecs


def codec_errors(family: PocketFamily, sentences: Sequence[str]) -> list[dict[str, float]]:
    """Mean squared error of the video codec on the drawn face saying each sentence: whole, mouth, eyes."""
    codec = family.weights.video
    real = video_codec.test_clips([speak(sentence) for sentence in sentences], codec.config.height)
    made = [video_codec.reconstruct(codec, clip[None].to(family.device)).cpu() for clip in real]
    return [video_codec.squared_errors(one[0], clip) for one, clip in zip(made, real, strict=True)]


def _plan_codec(config: EvaluationConfig) -> list[EvaluationJob]:
    sentences = judged_sentences(config.counts.clips)
    return [EvaluationJob(kind="clip", trials=len(sentences), do=partial(codec_errors, sentences=sentences))]


def _judge_codec(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    errors = [trial.result for trial in trials]
    return {name: video_codec.psnr_of(float(np.mean([e[name] for e in errors]))) for name in errors[0]}


# Level 1: forced phones


def recite(family: PocketFamily, sentences: Sequence[str], seed: int) -> list[tuple[Sentence, Pair]]:
    """Let the agent say each sentence with the phones and the timing of the original voice."""
    conversation = Conversation(family, seed)
    recital = ScriptedSpeech()
    conversation.state.speech = recital
    results = []
    for utterance in map(speak, sentences):
        frames = math.ceil(len(utterance.pcm) / FRAME_SAMPLES) + PHONE_LEAD
        units = math.ceil(frames / FRAMES_PER_UNIT)
        for _ in range(STILL_UNITS):
            conversation.reply(nobody(family))
        recital.script.extend(slots_of(utterance.phones, units * FRAMES_PER_UNIT))
        emissions = [conversation.reply(nobody(family))[1] for _ in range(units)]
        pcm = np.concatenate([sound_of(emission) for emission in emissions])
        made = np.array([opening(frame) for emission in emissions for frame in emission.frames])[PHONE_LEAD:]
        expected = drawn_openings(utterance.phones, len(made), family.media.height)
        results.append((listen(family, utterance, pcm), (made, expected)))
    return results


def _plan_recital(config: EvaluationConfig) -> list[EvaluationJob]:
    return [
        EvaluationJob(
            kind="sentence", trials=len(batch), do=partial(recite, sentences=batch, seed=config.seed + index)
        )
        for index, batch in enumerate(_batches(judged_sentences(config.counts.sentences)))
    ]


def _judge_recital(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    rates = word_error_rates([trial.result[0] for trial in trials])
    return {
        "forced_wer": rates["wer"],
        "forced_wer_over_original": rates["wer_over_original"],
        **lip_sync([trial.result[1] for trial in trials]),
    }


# Level 2 (and the silence of level 0): typed lines


def converse(
    family: PocketFamily, sentences: Sequence[str], seed: int
) -> tuple[SpokenTurn, list[SpokenTurn]]:
    """Wait ten seconds, then type the sentences one after the other, each when the agent is done.

    Returns:
        The wait and the turns.

    Raises:
        TrainingError: a sentence is refused, so there is nothing in it to say.
    """
    conversation = Conversation(family, seed)

    def turn(still_units: int, *texts: str) -> SpokenTurn:
        sound: list[NDArray[np.float32]] = []
        speaking: list[bool] = []
        while len(speaking) < still_units or any(speaking[-still_units:]):
            said, emission = conversation.reply(nobody(family, *(texts if not speaking else ())))
            if said.refused:
                raise TrainingError(f"evaluate: the agent refused to say {said.refused[0]!r}")
            sound.append(sound_of(emission))
            speaking.append(said.speaking)
        return SpokenTurn(pcm=np.stack(sound), speaking=tuple(speaking))

    idle = turn(IDLE_UNITS)
    return idle, [turn(STILL_UNITS, sentence) for sentence in sentences]


def type_and_listen(
    family: PocketFamily, sentences: Sequence[str], seed: int
) -> list[tuple[dict[str, float], list[Sentence]]]:
    """Levels of silence of one session, and the sentences as they were heard."""
    idle, turns = converse(family, sentences, seed)
    heard = [
        listen(family, speak(sentence), turn.pcm[: turn.spoken_units + TAIL_UNITS].ravel())
        for sentence, turn in zip(sentences, turns, strict=True)
    ]
    return [(silence_levels(idle, turns), heard)]


def _plan_typing(config: EvaluationConfig) -> list[EvaluationJob]:
    return [
        EvaluationJob(
            kind="session", trials=1, do=partial(type_and_listen, sentences=batch, seed=config.seed + index)
        )
        for index, batch in enumerate(_batches(judged_sentences(config.counts.sentences)))
    ]


def _judge_typing(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    results = [trial.result for trial in trials]
    # The worst of the sessions; a mean of decibels would say little.
    levels = {name: max(levels[name] for levels, _ in results) for name in results[0][0]}
    return word_error_rates([sentence for _, batch in results for sentence in batch]) | levels


# Level 2: how long phones last


def time_phones(family: PocketFamily, sentences: Sequence[str]) -> list[tuple[int, int]]:
    """Of each sentence, how many phones are timed exactly to the frame, and how many there are."""
    results = []
    for sentence in sentences:
        windows, lengths = examples([speak(sentence)])
        guessed = family.weights.timer(windows.to(family.device)).argmax(-1).cpu()
        results.append((int((guessed == lengths).sum()), len(lengths)))
    return results


def _plan_timing(config: EvaluationConfig) -> list[EvaluationJob]:
    sentences = judged_sentences(config.counts.clips)
    return [
        EvaluationJob(kind="sentence", trials=len(sentences), do=partial(time_phones, sentences=sentences))
    ]


def _judge_timing(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    exact, phones = np.sum([trial.result for trial in trials], axis=0)
    return {"phones_exact": 100 * float(exact / phones)}


def listen(family: PocketFamily, utterance: AgentUtterance, pcm: NDArray[np.float32]) -> Sentence:
    """Count the recogniser's errors on the agent's voice, on the original and on the codec alone."""
    codec = audio_codec.reconstruct(family.weights.audio, utterance.pcm)
    heard, *others = (recognise(x) for x in (pcm, utterance.pcm, codec))
    errors, words = word_errors(heard, utterance.sentence)
    original, after_codec = (word_errors(x, utterance.sentence)[0] for x in others)
    return Sentence(
        said=utterance.sentence, heard=heard, words=words,
        errors=errors, errors_original=original, errors_codec=after_codec,
    )  # fmt: skip


@functools.cache
def _book() -> frozenset[str]:
    return frozenset(prose())


def word_error_rates(sentences: Sequence[Sentence]) -> dict[str, float]:
    """Errors per hundred words.

    Unseen small talk shares its patterns with what was trained on, unseen prose shares nothing.
    """
    book = _book()
    read = [s for s in sentences if s.said in book]
    chat = [s for s in sentences if s.said not in book]

    def rate(errors: int, of: Sequence[Sentence]) -> float:
        return 100 * errors / max(1, sum(s.words for s in of))

    rates = {
        "wer": rate(sum(s.errors for s in sentences), sentences),
        "wer_small_talk": rate(sum(s.errors for s in chat), chat),
        "wer_prose": rate(sum(s.errors for s in read), read),
        "wer_original": rate(sum(s.errors_original for s in sentences), sentences),
        "wer_codec": rate(sum(s.errors_codec for s in sentences), sentences),
    }
    return rates | {"wer_over_original": rates["wer"] - rates["wer_original"]}


def silence_levels(idle: SpokenTurn, turns: Sequence[SpokenTurn]) -> dict[str, float]:
    """Level in dBFS (RMS, floor -100) before the first line and after each, and of the loudest such unit."""
    after = [turn.pcm[turn.spoken_units + RINGING_UNITS :] for turn in turns]
    quiet = np.concatenate([idle.pcm, *after])
    return {
        "silence_before_dbfs": decibels(idle.pcm),
        "silence_after_dbfs": decibels(np.concatenate(after)),
        "silence_loudest_unit_dbfs": max(decibels(unit) for unit in quiet),
    }


PARTS: tuple[Part, ...] = (
    Part(name="codecs", levels=frozenset({0}), plan=_plan_codec, judge=_judge_codec),
    Part(
        name="forced speech", levels=frozenset({1}), plan=_plan_recital, judge=_judge_recital,
        cases=lambda trial: [dataclasses.asdict(trial.result[0])],
    ),
    Part(
        name="typed speech", levels=frozenset({0, 2}), plan=_plan_typing, judge=_judge_typing,
        cases=lambda trial: [dataclasses.asdict(sentence) for sentence in trial.result[1]],
    ),
    Part(name="phone timing", levels=frozenset({2}), plan=_plan_timing, judge=_judge_timing),
)  # fmt: skip

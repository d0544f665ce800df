"""Level 4: how soon the agent answers, how soon it falls silent, and whether it speaks out of turn.

Whole sessions, with the agent's sound and picture. Times are those of the listener: unit k of the agent can
be heard from the end of unit k of the user on, and the model's work comes on top.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.family import PocketFamily
from training.data.faces.gaze import nod_of
from training.data.hearing.scenes import AudioScene
from training.data.hearing.targets import Placed
from training.data.noise.synth import RATE
from training.data.split import judging_rng
from training.data.vision.scene import watch
from training.evaluation.conversation import Conversation, sound_of
from training.evaluation.hearing import Answer, matched
from training.evaluation.measures import as_json
from training.evaluation.parts import EvaluationConfig, EvaluationJob, Part, Trial
from training.evaluation.signals import WINDOW, loud, seconds, within
from training.evaluation.users import (
    UNIT_S,
    UNIT_SAMPLES,
    Speakers,
    asking,
    in_turn,
    observations,
    staged,
)

REACTION_S = 0.32  # the agent may still speak so long after the user begins to
FIRST_S, ANSWER_S, LISTEN_S = (0.8, 1.6), 2.4, 3.0
INTERRUPT_AFTER_S = (2.0, 5.0)  # the end of the request for a story
SILENT_S = 0.5  # without a sound: it has stopped, and does not just take breath
STORY_S = 0.8  # the story must sound in so many seconds before it is interrupted
SHORTEST_S = 0.9  # of an interruption
PAUSES_S = (0.5, 1.5)
SENTENCES_A_SESSION = 5
SESSIONS_A_JOB = 4
NOD, NOD_FRAMES = 0.4, 12  # the head is down so far for a nod, which lasts no longer


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnTrial:
    """One session.

    Attributes:
        kind: `question`, `interruption` or `talk`, in which nothing is asked.
        text: what the user said.
        understood: all that the agent took for a request.
        answer_s: from the end of the question to the first sound of an answer to what was asked; infinite
            without one; NaN if nothing was asked.
        to_silence_s: from the user's voice to the end of the story's sound; infinite if the agent spoke on
            to the end of the interruption; NaN if no story was told.
        user_s: how long the user spoke.
        over_s: how long the agent spoke meanwhile, but for the time it takes to react.
        babble_s: how long it spoke before anything was asked.
        quiet_s: how long nothing had been asked.
        nods: how often the head nodded.
    """

    kind: str
    text: str
    understood: list[str]
    answer_s: float
    to_silence_s: float
    user_s: float
    over_s: float
    babble_s: float
    quiet_s: float
    nods: int


def live_through(
    family: PocketFamily, scene: AudioScene, rng: np.random.Generator, model_side_s: float
) -> tuple[list[Answer], NDArray[np.bool_], NDArray[np.float64]]:
    """What was taken for requests when; in each 10 ms, whether the agent is heard; its nod in each frame."""
    conversation = Conversation(family, int(rng.integers(2**31)))
    view = watch(rng, len(scene.pcm) // UNIT_SAMPLES, held_out=True)
    understood, heads = list[Answer](), list[float]()
    sound = [np.zeros(round((UNIT_S + model_side_s) * RATE), np.float32)]
    for unit, user in enumerate(observations(family, scene.pcm, view.frames)):
        said, emission = conversation.reply(user)
        understood += [((unit + 1) * UNIT_S, said.heard)] if said.heard else []
        sound.append(sound_of(emission))
        heads += [nod_of(frame) for frame in emission.frames]
    return understood, loud(np.concatenate(sound)), np.array(heads)


def session(
    family: PocketFamily,
    kind: str,
    said: list[Placed],
    text: str,
    rng: np.random.Generator,
    *,
    model_side_s: float,
) -> TurnTrial:
    """Let a user say something and see what the agent does."""
    tail_s = {"question": ANSWER_S, "interruption": ANSWER_S, "talk": LISTEN_S}[kind]
    scene = staged(rng, said, tail_s=tail_s)
    understood, heard, heads = live_through(family, scene, rng, model_side_s=model_side_s)
    spans = [(event.start_s, event.end_s) for event in scene.events]
    user = within(spans, len(heard))
    noticed = within([(start + REACTION_S, end) for start, end in spans], len(heard))
    before = np.arange(len(heard)) * WINDOW / RATE < (np.inf if kind == "talk" else spans[0][0])
    asked = said[0].spoken.request.name.lower()
    return TurnTrial(
        kind=kind,
        text=text,
        understood=[name for _, name in understood],
        answer_s=answered_s(heard, understood, (asked, *spans[0])) if kind == "question" else np.nan,
        to_silence_s=seconds_to_silence(heard, spans[-1]) if kind == "interruption" else np.nan,
        user_s=seconds(user),
        over_s=seconds(heard & noticed),
        babble_s=seconds(heard & before),
        quiet_s=seconds(before),
        nods=count_nods(heads),
    )


def answered_s(
    heard: NDArray[np.bool_], understood: list[Answer], question: tuple[str, float, float]
) -> float:
    """How long after the end of a (request, start, end) its answer is heard; infinite if it never is.

    An answer is to what was asked: sound that follows another decision, or none, is no answer.
    """
    asked, _, end_s = question
    ((answer,), _) = matched(understood, [question])
    if answer is None or answer[1] != asked:
        return np.inf
    at = np.flatnonzero(heard)
    after = at[at >= round(max(end_s, answer[0]) * RATE / WINDOW)]
    return float(after[0]) * WINDOW / RATE - end_s if len(after) else np.inf


def seconds_to_silence(heard: NDArray[np.bool_], interruption: tuple[float, float]) -> float:
    """How long after the start of an interruption the agent falls silent; NaN if it was silent anyway.

    Infinite if it speaks to the end. Silent is who isn't heard for SILENT_S: an answer to what interrupts may
    follow before its last word.
    """
    start, end = (round(at * RATE / WINDOW) for at in interruption)
    if not heard[max(0, start - round(STORY_S * RATE / WINDOW)) : start].any():
        return np.nan
    gap = round(SILENT_S * RATE / WINDOW)
    at = start
    while at < end and heard[at : at + gap].any():
        at += 1
    return (at - start) * WINDOW / RATE if at < end else np.inf


def count_nods(heads: NDArray[np.float64]) -> int:
    """How often the head goes down, given how low it is in each frame."""
    down = heads > NOD
    starts = np.flatnonzero(down & ~np.concatenate([[False], down[:-1]]))
    return 1 + int((np.diff(starts) > NOD_FRAMES).sum()) if len(starts) else 0


def ask(family: PocketFamily, users: list[Speakers], seed: int, model_side_s: float) -> list[TurnTrial]:
    """One question to each bank's users."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = judging_rng(seed, number)
        question = bank.utterance(int(rng.choice(asking(bank))))
        said = in_turn([question], rng, first_s=FIRST_S, pause_s=PAUSES_S)
        results.append(session(family, "question", said, question.text, rng, model_side_s=model_side_s))
    return results


def interrupt(family: PocketFamily, users: list[Speakers], seed: int, model_side_s: float) -> list[TurnTrial]:
    """Ask for a story, and speak while it is told."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = judging_rng(seed, number)
        request = bank.utterance(int(rng.choice(asking(bank, Request.STORY))))
        said = in_turn([request], rng, first_s=FIRST_S, pause_s=PAUSES_S)
        lengths = np.diff(bank.starts)
        other = bank.utterance(int(rng.choice(np.flatnonzero(lengths > SHORTEST_S * RATE))))
        said.append(Placed(spoken=other, start=said[0].end + round(rng.uniform(*INTERRUPT_AFTER_S) * RATE)))
        results.append(
            session(
                family, "interruption", said, f"{request.text} / {other.text}", rng, model_side_s=model_side_s
            )
        )
    return results


def talk(family: PocketFamily, users: list[Speakers], seed: int, model_side_s: float) -> list[TurnTrial]:
    """Say a few sentences that ask for nothing."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = judging_rng(seed, number)
        chosen = rng.choice(np.flatnonzero(bank.requests == Request.NONE), SENTENCES_A_SESSION)
        spoken = [bank.utterance(int(index)) for index in chosen]
        said = in_turn(spoken, rng, first_s=FIRST_S, pause_s=PAUSES_S)
        results.append(session(family, "talk", said, spoken[0].text, rng, model_side_s=model_side_s))
    return results


def _plan(config: EvaluationConfig) -> list[EvaluationJob]:
    users, counts = config.speakers(), config.counts
    kinds = (
        ("question", ask, counts.questions),
        ("interruption", interrupt, counts.interruptions),
        ("talk", talk, counts.talks),
    )
    jobs: list[EvaluationJob] = []
    for kind, act, count in kinds:
        turns = [users[index % len(users)] for index in range(count)]
        for at in range(0, count, SESSIONS_A_JOB):
            some = turns[at : at + SESSIONS_A_JOB]
            do = partial(act, users=some, seed=config.seed + at, model_side_s=config.pair.p50_ms / 1000)
            jobs.append(EvaluationJob(kind=kind, trials=len(some), do=do))
    return jobs


def _judge(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    sessions: list[TurnTrial] = [trial.result for trial in trials]
    talks = [session for session in sessions if session.kind == "talk"]
    answers = np.array([session.answer_s for session in sessions if session.kind == "question"])
    silences = np.array([session.to_silence_s for session in sessions if session.kind == "interruption"])
    silences = silences[~np.isnan(silences)]
    quiet_s = sum(session.quiet_s for session in sessions)
    # Sessions were lived through with the pair's usual time; the slowest answers get its slowest units.
    slow_ms = config.pair.p99_ms - config.pair.p50_ms
    return {
        "model_side_ms_p50": config.pair.p50_ms,
        "model_side_ms_p99": config.pair.p99_ms,
        "answer_ms_p50": percentile_ms(answers, 50),
        "answer_ms_p95": percentile_ms(answers, 95) + slow_ms,
        "answers_missing": 100 * float(np.isinf(answers).mean()) if len(answers) else np.nan,
        "interruptions": float(len(silences)),
        "barge_in_ms_p50": percentile_ms(silences, 50),
        "barge_in_ms_p95": percentile_ms(silences, 95) + slow_ms,
        "talk_over": 100 * sum(s.over_s for s in sessions) / sum(s.user_s for s in sessions),
        "babble": 60 * sum(s.babble_s for s in sessions) / quiet_s,
        "nods": 60 * sum(s.nods for s in talks) / max(1e-9, sum(s.quiet_s for s in talks)),
    }


def _case(trial: Trial) -> list[dict[str, Any]]:
    """A session for JSON, which knows neither NaN nor infinity."""
    row = asdict(trial.result)
    return [{key: as_json(value) if isinstance(value, float) else value for key, value in row.items()}]


def percentile_ms(seconds_each: NDArray[np.float64], percent: float) -> float:
    """The least time that so many percent or more keep to; infinite where they never do, NaN for none."""
    if not len(seconds_each):
        return np.nan
    return 1000 * float(np.percentile(seconds_each, percent, method="inverted_cdf"))


PARTS: tuple[Part, ...] = (
    Part(name="taking turns", levels=frozenset({4}), plan=_plan, judge=_judge, cases=_case),
)

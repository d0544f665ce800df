"""Level 4: how soon the agent answers, how soon it falls silent, and whether it speaks out of turn.

Whole sessions, with the agent's sound and picture. Times are those of the listener: unit k of the agent can
be heard from the end of unit k of the user on, and the model's work comes on top.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.family import PocketFamily
from shared.models.pocket.replies import Request
from training.data.faces.gaze import nod_of
from training.data.hearing.scenes import AudioScene
from training.data.hearing.targets import Placed
from training.data.noise.synth import RATE
from training.data.vision.scene import watch
from training.evaluation.conversation import Conversation, sound_of
from training.evaluation.parts import EvaluationConfig, EvaluationJob, Part, PartResult
from training.evaluation.signals import WINDOW, loud, seconds, within
from training.evaluation.users import (
    MODEL_SIDE_S,
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
        answer_s: from the end of the question to the agent's first sound; NaN without one.
        hush_s: from the user's voice to the end of the story's sound; NaN if no story was told.
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
    hush_s: float
    user_s: float
    over_s: float
    babble_s: float
    quiet_s: float
    nods: int


def live_through(
    family: PocketFamily, scene: AudioScene, rng: np.random.Generator
) -> tuple[list[str], NDArray[np.bool_], NDArray[np.float64]]:
    """What was taken for requests; in each 10 ms, whether the agent is heard; its nod in each frame."""
    conversation = Conversation(family, int(rng.integers(2**31)))
    sight = watch(rng, len(scene.pcm) // UNIT_SAMPLES, held_out=True)
    understood, sound, heads = [], [np.zeros(round((UNIT_S + MODEL_SIDE_S) * RATE), np.float32)], []
    for user in observations(family, scene.pcm, sight.frames):
        said, emission = conversation.reply(user)
        understood += [said.heard] if said.heard else []
        sound.append(sound_of(emission))
        heads += [nod_of(frame) for frame in emission.frames]
    return understood, loud(np.concatenate(sound)), np.array(heads)


def session(
    family: PocketFamily, kind: str, said: list[Placed], text: str, rng: np.random.Generator
) -> TurnTrial:
    """Let a user say something and see what the agent does."""
    tail_s = {"question": ANSWER_S, "interruption": ANSWER_S, "talk": LISTEN_S}[kind]
    scene = staged(rng, said, tail_s=tail_s)
    understood, heard, heads = live_through(family, scene, rng)
    spans = [(event.start_s, event.end_s) for event in scene.events]
    user = within(spans, len(heard))
    noticed = within([(start + REACTION_S, end) for start, end in spans], len(heard))
    before = np.arange(len(heard)) * WINDOW / RATE < (np.inf if kind == "talk" else spans[0][0])
    return TurnTrial(
        kind=kind,
        text=text,
        understood=understood,
        answer_s=first_sound_s(heard, spans[0][0]) - spans[0][1] if kind == "question" else np.nan,
        hush_s=hushed_s(heard, spans[-1]) if kind == "interruption" else np.nan,
        user_s=seconds(user),
        over_s=seconds(heard & noticed),
        babble_s=seconds(heard & before),
        quiet_s=seconds(before),
        nods=count_nods(heads),
    )


def first_sound_s(heard: NDArray[np.bool_], since_s: float) -> float:
    """When the agent is first heard after a moment, in seconds; NaN if never."""
    at = np.flatnonzero(heard)
    after = at[at >= since_s * RATE / WINDOW]
    return float(after[0]) * WINDOW / RATE if len(after) else np.nan


def hushed_s(heard: NDArray[np.bool_], interruption: tuple[float, float]) -> float:
    """How long after the start of an interruption the agent falls silent; NaN if it was silent anyway.

    Silent is who isn't heard for SILENT_S: an answer to what interrupts may follow before its last word.
    """
    start, end = (round(at * RATE / WINDOW) for at in interruption)
    if not heard[max(0, start - round(STORY_S * RATE / WINDOW)) : start].any():
        return np.nan
    gap = round(SILENT_S * RATE / WINDOW)
    at = start
    while at < end and heard[at : at + gap].any():
        at += 1
    return (at - start) * WINDOW / RATE


def count_nods(heads: NDArray[np.float64]) -> int:
    """How often the head goes down, given how low it is in each frame."""
    down = heads > NOD
    starts = np.flatnonzero(down & ~np.concatenate([[False], down[:-1]]))
    return 1 + int((np.diff(starts) > NOD_FRAMES).sum()) if len(starts) else 0


def ask(family: PocketFamily, users: list[Speakers], seed: int) -> list[TurnTrial]:
    """One question to each bank's users."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = np.random.default_rng((seed, number))
        question = bank.utterance(int(rng.choice(asking(bank))))
        said = in_turn([question], rng, first_s=FIRST_S, pause_s=PAUSES_S)
        results.append(session(family, "question", said, question.text, rng))
    return results


def interrupt(family: PocketFamily, users: list[Speakers], seed: int) -> list[TurnTrial]:
    """Ask for a story, and speak while it is told."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = np.random.default_rng((seed, number))
        wish = bank.utterance(int(rng.choice(asking(bank, Request.STORY))))
        said = in_turn([wish], rng, first_s=FIRST_S, pause_s=PAUSES_S)
        lengths = np.diff(bank.starts)
        other = bank.utterance(int(rng.choice(np.flatnonzero(lengths > SHORTEST_S * RATE))))
        said.append(Placed(spoken=other, start=said[0].end + round(rng.uniform(*INTERRUPT_AFTER_S) * RATE)))
        results.append(session(family, "interruption", said, f"{wish.text} / {other.text}", rng))
    return results


def talk(family: PocketFamily, users: list[Speakers], seed: int) -> list[TurnTrial]:
    """Say a few sentences that ask for nothing."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = np.random.default_rng((seed, number))
        chosen = rng.choice(np.flatnonzero(bank.requests == Request.NONE), SENTENCES_A_SESSION)
        spoken = [bank.utterance(int(index)) for index in chosen]
        said = in_turn(spoken, rng, first_s=FIRST_S, pause_s=PAUSES_S)
        results.append(session(family, "talk", said, spoken[0].text, rng))
    return results


def _plan(setting: EvaluationConfig) -> list[EvaluationJob]:
    users = setting.speakers()
    effort = setting.effort
    jobs: list[EvaluationJob] = []
    for kind, count in ((ask, effort.questions), (interrupt, effort.interruptions), (talk, effort.talks)):
        turns = [users[index % len(users)] for index in range(count)]
        jobs += [
            partial(kind, users=turns[at : at + SESSIONS_A_JOB], seed=setting.seed + at)
            for at in range(0, count, SESSIONS_A_JOB)
        ]
    return jobs


def _judge(results: list[list[TurnTrial]]) -> PartResult:
    sessions = [session for batch in results for session in batch]
    talks = [session for session in sessions if session.kind == "talk"]
    answers = np.array([session.answer_s for session in sessions if session.kind == "question"])
    hushes = np.array([session.hush_s for session in sessions if session.kind == "interruption"])
    quiet_s = sum(session.quiet_s for session in sessions)
    measures = {
        "answer_ms_p50": _percentile_ms(answers, 50),
        "answer_ms_p95": _percentile_ms(answers, 95),
        "answers_missing": 100 * float(np.isnan(answers).mean()),
        "interruptions": float((~np.isnan(hushes)).sum()),
        "hush_ms_p50": _percentile_ms(hushes, 50),
        "hush_ms_p95": _percentile_ms(hushes, 95),
        "talk_over": 100 * sum(s.over_s for s in sessions) / sum(s.user_s for s in sessions),
        "babble": 60 * sum(s.babble_s for s in sessions) / quiet_s,
        "nods": 60 * sum(s.nods for s in talks) / max(1e-9, sum(s.quiet_s for s in talks)),
    }
    return PartResult(measures=measures, cases=[_case(session) for session in sessions])


def _case(one: TurnTrial) -> dict[str, Any]:
    """A session for JSON, which knows no NaN."""
    return {name: None if value != value else value for name, value in asdict(one).items()}  # noqa: PLR0124


def _percentile_ms(seconds_each: NDArray[np.float64], percent: float) -> float:
    """Of those that are known; NaN if none is."""
    known = seconds_each[~np.isnan(seconds_each)]
    return 1000 * float(np.percentile(known, percent)) if len(known) else np.nan


PARTS: tuple[Part, ...] = (Part(name="taking turns", levels=frozenset({4}), plan=_plan, judge=_judge),)

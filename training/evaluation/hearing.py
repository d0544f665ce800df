"""Level 3: which of the spoken requests are understood, and how often something is answered that is none.

The agent listens and decides, but isn't let speak: that costs a fifth.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.family import PocketFamily
from training.data.hearing.scenes import ALONE_DB, COMMON, compose
from training.data.noise.acoustics import captured, impulse_response, worn
from training.data.noise.music import music
from training.data.noise.synth import decibels
from training.data.split import judging_rng
from training.data.vision.scene import watch
from training.data.voices.bank import UtteranceBank
from training.evaluation.conversation import Conversation
from training.evaluation.parts import REQUIRED, EvaluationConfig, EvaluationJob, Part, Trial
from training.evaluation.users import (
    UNIT_S,
    UNIT_SAMPLES,
    Speakers,
    in_turn,
    observations,
    staged,
)

REQUESTS_A_SCENE = 3
SCENES_A_JOB = 10
FIRST_S, PAUSE_S, TAIL_S = (0.3, 2.0), (0.8, 4.0), 1.2
ANSWER_WITHIN_S = 1.0  # after the end of a request; what is decided later is no answer to it
EARLY_S = 0.1  # before its end: in time already
OTHER_UNITS = 75  # of a scene in which nothing is asked: 12 s
UNSEEN = "unseen"  # wordings
KINDS = ("noise", "music", "sentences")


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTrial:
    """What was asked ("" for nothing), and what was understood ("" for nothing)."""

    asked: str
    understood: str
    voice: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HearingTrial:
    """One scene: how long it is, and what was asked and understood in it."""

    minutes: float
    cases: list[RequestTrial]


Answer = tuple[float, str]
"""When (seconds) the agent decided to answer what."""


def listen_to(family: PocketFamily, pcm_N: NDArray[np.float32], rng: np.random.Generator) -> list[Answer]:
    """When (seconds) the agent decides to answer what, in a session with this sound and any picture."""
    conversation = Conversation(family, int(rng.integers(2**31)))
    view = watch(rng, len(pcm_N) // UNIT_SAMPLES, held_out=True)
    heard = [conversation.hear(user).heard for user in observations(family, pcm_N, view.frames)]
    return [((unit + 1) * UNIT_S, name) for unit, name in enumerate(heard) if name]


def matched(
    heard: list[Answer], spans: list[tuple[str, float, float]]
) -> tuple[list[Answer | None], list[Answer]]:
    """As what each (request, start, end) in seconds was understood, if at all, and the rest of `heard`.

    A request may be understood before its last word: "please" adds nothing.
    """
    understood, rest = list[Answer | None]([None] * len(spans)), list[Answer]()
    for time, name in heard:
        for index, (request, start, end) in enumerate(spans):
            in_time = end - EARLY_S <= time <= end + ANSWER_WITHIN_S
            if understood[index] is None and (in_time or (start < time < end and name == request)):
                understood[index] = time, name
                break
        else:
            rest.append((time, name))
    return understood, rest


def hear_requests(
    family: PocketFamily, speakers: Speakers, scenes: list[list[int]], seed: int
) -> list[HearingTrial]:
    """Let users ask what their bank has at these indices, a few requests a scene."""
    utterances, trials = speakers.bank(), []
    for number, indices in enumerate(scenes):
        rng = judging_rng(seed, number)
        spoken = [utterances.utterance(index) for index in indices]
        scene = staged(rng, in_turn(spoken, rng, first_s=FIRST_S, pause_s=PAUSE_S), tail_s=TAIL_S)
        names = [one.request.name.lower() for one in spoken]
        spans = [(name, event.start_s, event.end_s) for name, event in zip(names, scene.events, strict=True)]
        answers, rest = matched(listen_to(family, scene.pcm, rng), spans)
        cases = [
            RequestTrial(
                asked=name, understood="" if answer is None else answer[1], voice=one.voice, text=one.text
            )
            for one, name, answer in zip(spoken, names, answers, strict=True)
        ]
        cases += [RequestTrial(asked="", understood=name) for _, name in rest]
        trials.append(HearingTrial(minutes=len(scene.pcm) / UNIT_SAMPLES * UNIT_S / 60, cases=cases))
    return trials


def hear_others(
    family: PocketFamily, speakers: Speakers, kind: str, scenes: int, seed: int
) -> list[HearingTrial]:
    """Let scenes of a kind pass in which nothing is asked."""
    utterances, trials = speakers.bank(), []
    for number in range(scenes):
        rng = judging_rng(seed, number)
        heard = listen_to(family, other_scene(kind, utterances, rng), rng)
        cases = [RequestTrial(asked="", understood=name) for _, name in heard]
        trials.append(HearingTrial(minutes=OTHER_UNITS * UNIT_S / 60, cases=cases))
    return trials


def other_scene(kind: str, bank: UtteranceBank, rng: np.random.Generator) -> NDArray[np.float32]:
    """12 s of noise, music or sentences that aren't to be answered."""
    num = OTHER_UNITS * UNIT_SAMPLES
    match kind:
        case "music":
            room = impulse_response(rng) if rng.random() < COMMON.room else None
            loud = music(rng, num) * np.float32(decibels(rng.uniform(*ALONE_DB)))
            return worn(rng, captured(rng, [(loud, room)]))
        case "noise":
            odds = dataclasses.replace(COMMON, no_user=1)
        case _:
            odds = dataclasses.replace(COMMON, no_user=0, request=0, others=0, other_speaker=0.5)
    return compose(bank, rng, seconds=OTHER_UNITS * UNIT_S, odds=odds).pcm


def _plan(config: EvaluationConfig) -> list[EvaluationJob]:
    users = config.speakers()
    share_s = config.counts.other_minutes * 60 / len(KINDS)
    jobs: list[EvaluationJob] = []
    for index, speakers in enumerate(users):
        seed = config.seed + 1000 * index
        jobs += _requests_of(speakers, speakers.family, seed)
        jobs += _others("sentences", speakers, share_s / len(users), seed)
    for index, speakers in enumerate(config.speakers(unseen_wordings=True)):
        jobs += _requests_of(speakers, UNSEEN, config.seed + 300_000 + 1000 * index)
    for index, speakers in enumerate(config.optional_speakers()):
        jobs += _requests_of(speakers, speakers.family, config.seed + 500_000 + 1000 * index)
    # The first lend their voices for people in the background.
    for kind in KINDS[:2]:
        jobs += _others(kind, users[0], share_s, config.seed)
    return jobs


def _requests_of(speakers: Speakers, kind: str, seed: int) -> list[EvaluationJob]:
    indices = judging_rng(seed).permutation(np.flatnonzero(speakers.requests)).tolist()
    scenes = [indices[at : at + REQUESTS_A_SCENE] for at in range(0, len(indices), REQUESTS_A_SCENE)]
    jobs = []
    for at in range(0, len(scenes), SCENES_A_JOB):
        some = scenes[at : at + SCENES_A_JOB]
        hear = partial(hear_requests, speakers=speakers, scenes=some, seed=seed + at)
        jobs.append(EvaluationJob(kind=kind, trials=len(some), do=hear))
    return jobs


def _others(kind: str, speakers: Speakers, seconds: float, seed: int) -> list[EvaluationJob]:
    count = max(1, round(seconds / (OTHER_UNITS * UNIT_S)))
    jobs = []
    for at in range(0, count, SCENES_A_JOB):
        some = min(SCENES_A_JOB, count - at)
        hear = partial(hear_others, speakers=speakers, kind=kind, scenes=some, seed=seed + at)
        jobs.append(EvaluationJob(kind=kind, trials=some, do=hear))
    return jobs


def _judge(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    kinds = {trial.kind: [one.result for one in trials if one.kind == trial.kind] for trial in trials}
    common = [case for kind in REQUIRED for heard in kinds.get(kind, ()) for case in heard.cases]
    asked = [case for case in common if case.asked]
    others = [heard for kind in KINDS for heard in kinds[kind]]
    measures = {
        "requests": float(len(asked)),
        **_shares(asked),
        "requests_twice": 100 * (len(common) - len(asked)) / len(asked),
        "other_minutes": sum(heard.minutes for heard in others),
        "false_starts": _per_5_minutes(others),
    }
    for kind in config.counts.optional_voices:
        measures[f"requests_right_{kind}"] = math.nan  # until it is known
    for kind, heard in kinds.items():
        if kind in KINDS:
            measures[f"false_starts_{kind}"] = _per_5_minutes(heard)
        else:
            own = [case for one in heard for case in one.cases if case.asked]
            measures[f"requests_right_{kind}"] = _shares(own)["requests_right"]
    return measures


def _cases(trial: Trial) -> list[dict[str, Any]]:
    """What was misunderstood."""
    wrong = [case for case in trial.result.cases if case.asked != case.understood]
    return [{"kind": trial.kind, **dataclasses.asdict(case)} for case in wrong]


def _shares(asked: list[RequestTrial]) -> dict[str, float]:
    """Percent of requests."""
    right = sum(case.understood == case.asked for case in asked)
    missed = sum(not case.understood for case in asked)
    counts = {"right": right, "missed": missed, "wrong": len(asked) - right - missed}
    return {f"requests_{name}": 100 * count / max(1, len(asked)) for name, count in counts.items()}


def _per_5_minutes(heard: list[HearingTrial]) -> float:
    return 5 * sum(len(one.cases) for one in heard) / max(1e-9, sum(one.minutes for one in heard))


PARTS: tuple[Part, ...] = (
    Part(name="hearing", levels=frozenset({3}), plan=_plan, judge=_judge, cases=_cases),
)

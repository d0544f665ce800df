"""Level 5: does the gaze follow the user, and does the agent know who and what is in front of its camera?"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Colour, Request, reply
from shared.models.pocket.family import PocketFamily
from training.data.faces.gaze import gaze_of
from training.data.split import judging_rng
from training.data.vision.scene import VisualScene, follow, still
from training.evaluation.conversation import Conversation
from training.evaluation.parts import EvaluationConfig, EvaluationJob, Part, Trial
from training.evaluation.recogniser import words_of
from training.evaluation.users import (
    UNIT_S,
    UNIT_SAMPLES,
    Speakers,
    asking,
    in_turn,
    observations,
    staged,
)

GAZE_UNITS = 75  # 12 s
WALK_FRAMES, STAY_FRAMES = (10, 60), (5, 60)
FPS = 25
LAGS = range(16)  # frames by which the gaze may be behind the user, within their units
SCENE_UNITS = 6
SCENES_A_JOB = 40
ANSWERS_A_JOB = 10
EMPTY, EMPTY_HANDED = 0.25, 0.3  # shares of the scenes
EDGE = 0.75  # the user's face stays so far inside of the picture
FIRST_S, TAIL_S = (1.0, 2.0), 4.0  # the answer is to end within the tail


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaze:
    """One session: where the user was and where the agent looked in each frame, both [F, 2].

    Both are counted as the agent's gaze is; rows of `gaze` are NaN while its eyes are shut.
    """

    user: NDArray[np.float64]
    gaze: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionTrial:
    """One scene: what was there and what the agent took it for."""

    there: bool
    thought_there: bool
    colour: str
    thought_colour: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTrial:
    """What was asked about a scene, what should have been said, and what was."""

    asked: str
    right: str
    said: str


def stroll(rng: np.random.Generator, num_frames: int) -> NDArray[np.float64]:
    """A path [F, 2] from place to place, with stays between."""
    pieces: list[NDArray[np.float64]] = []
    here = rng.uniform(-EDGE, EDGE, 2)
    while sum(map(len, pieces)) < num_frames:
        there = rng.uniform(-EDGE, EDGE, 2)
        steps = int(rng.integers(*WALK_FRAMES))
        share = (1 - np.cos(np.pi * np.arange(steps) / steps))[:, None] / 2
        pieces += [here + share * (there - here), np.tile(there, (int(rng.integers(*STAY_FRAMES)), 1))]
        here = there
    return np.concatenate(pieces)[:num_frames]


def be_watched(family: PocketFamily, seed: int) -> list[Gaze]:
    """Let a user walk about in silence and look at the agent's eyes."""
    rng = judging_rng(seed)
    conversation = Conversation(family, seed)
    path = stroll(rng, GAZE_UNITS * family.media.frames_per_unit)
    view = follow(rng, path.astype(np.float32), held_out=True)
    silence = np.zeros(GAZE_UNITS * UNIT_SAMPLES, np.float32)
    emissions = [conversation.reply(user)[1] for user in observations(family, silence, view.frames)]
    gaze = [gaze_of(frame) or (np.nan, np.nan) for emission in emissions for frame in emission.frames]
    # The agent faces the user: what its camera sees on the right is at its left.
    return [Gaze(user=path * (-1, 1), gaze=np.array(gaze))]


def gaze_measures(sessions: list[Gaze], model_side_s: float) -> dict[str, float]:
    """Correlation for each axis at the lag that is best for both, and the distance that is left there.

    A unit of the agent is seen a unit and `model_side_s` after the user's began.
    """
    at = {lag: _correlations(sessions, lag) for lag in LAGS}
    best = max(at, key=lambda lag: sum(at[lag]))
    user, gaze = _late(sessions, best)
    off = float(np.hypot(*(user - gaze).T).mean()) if len(user) else np.nan
    lag = best + round((UNIT_S + model_side_s) * FPS)
    return {"gaze_x": at[best][0], "gaze_y": at[best][1], "gaze_lag_frames": float(lag), "gaze_off": off}


def _late(sessions: list[Gaze], lag: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """User and gaze `lag` frames later, of all frames in which the eyes are open."""
    user = np.concatenate([one.user[: len(one.user) - lag] for one in sessions])
    gaze = np.concatenate([one.gaze[lag:] for one in sessions])
    open_eyed = ~np.isnan(gaze[:, 0])
    return user[open_eyed], gaze[open_eyed]


def _correlations(sessions: list[Gaze], lag: int) -> tuple[float, float]:
    user, gaze = _late(sessions, lag)
    if len(user) < 2 or min(gaze.std(0)) < 1e-9:
        return 0.0, 0.0
    x, y = (float(np.corrcoef(user[:, axis], gaze[:, axis])[0, 1]) for axis in (0, 1))
    return x, y


def scene(rng: np.random.Generator, units: int) -> VisualScene:
    """Somebody or nobody, with something of a colour or with nothing, of kinds that no training drew."""
    x, y = rng.uniform(-EDGE, EDGE, 2).tolist()
    place = None if rng.random() < EMPTY else (x, y)
    colour = Colour.NONE if rng.random() < EMPTY_HANDED else Colour(int(rng.integers(1, len(Colour))))
    return still(rng, units, place=place, colour=colour, held_out=True)


def look_at(family: PocketFamily, scenes: int, seed: int) -> list[VisionTrial]:
    """Show scenes for a second each, and read what the agent would answer if it were asked then."""
    results = []
    for number in range(scenes):
        rng = judging_rng(seed, number)
        conversation = Conversation(family, seed + number)
        view = scene(rng, SCENE_UNITS)
        for user in observations(family, np.zeros(SCENE_UNITS * UNIT_SAMPLES, np.float32), view.frames):
            conversation.hear(user)
        thought = conversation.state.turn_taking
        results.append(
            VisionTrial(
                there=bool(view.present[-1]), thought_there=thought.present,
                colour=Colour(int(view.colour[-1])).name.lower(), thought_colour=thought.colour.name.lower(),
            )
        )  # fmt: skip
    return results


def ask_about(family: PocketFamily, users: list[Speakers], seed: int) -> list[AnswerTrial]:
    """Ask what the agent sees, or which colour this is, and read its answer."""
    results = []
    for number, speakers in enumerate(users):
        bank = speakers.bank()
        rng = judging_rng(seed, number)
        request = Request.SEE if number % 2 else Request.COLOUR
        question = bank.utterance(int(rng.choice(asking(bank, request))))
        sound = staged(rng, in_turn([question], rng, first_s=FIRST_S, pause_s=FIRST_S), tail_s=TAIL_S).pcm
        view = scene(rng, len(sound) // UNIT_SAMPLES)
        conversation = Conversation(family, seed + number)
        said = [conversation.hear(user).text for user in observations(family, sound, view.frames)]
        right = reply(request, last="", present=bool(view.present[-1]), colour=Colour(int(view.colour[-1])))
        results.append(AnswerTrial(asked=question.text, right=right, said="".join(said).strip()))
    return results


def _plan_gaze(config: EvaluationConfig) -> list[EvaluationJob]:
    return [
        EvaluationJob(kind="walk", trials=1, do=partial(be_watched, seed=config.seed + index))
        for index in range(config.counts.gazes)
    ]


def _judge_gaze(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    return gaze_measures([trial.result for trial in trials], config.pair.p50_ms / 1000)


def _plan_scenes(config: EvaluationConfig) -> list[EvaluationJob]:
    jobs = []
    for at in range(0, config.counts.scenes, SCENES_A_JOB):
        some = min(SCENES_A_JOB, config.counts.scenes - at)
        look = partial(look_at, scenes=some, seed=config.seed + at)
        jobs.append(EvaluationJob(kind="scene", trials=some, do=look))
    return jobs


def _judge_scenes(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    scenes: list[VisionTrial] = [trial.result for trial in trials]
    there = [one.there == one.thought_there for one in scenes]
    colour = [one.colour == one.thought_colour for one in scenes]
    return {
        "scenes": float(len(scenes)),
        "present_right": 100 * float(np.mean(there)),
        "colour_right": 100 * float(np.mean(colour)),
        "vision_right": 100 * float(np.mean(np.logical_and(there, colour))),
    }


def _wrong_scenes(trial: Trial) -> list[dict[str, Any]]:
    one: VisionTrial = trial.result
    right = (one.there, one.colour) == (one.thought_there, one.thought_colour)
    return [] if right else [asdict(one)]


def _plan_answers(config: EvaluationConfig) -> list[EvaluationJob]:
    users = config.speakers()
    turns = [users[index // 2 % len(users)] for index in range(config.counts.answers)]
    jobs = []
    for at in range(0, len(turns), ANSWERS_A_JOB):
        some = turns[at : at + ANSWERS_A_JOB]
        do = partial(ask_about, users=some, seed=config.seed + at)
        jobs.append(EvaluationJob(kind="question", trials=len(some), do=do))
    return jobs


def _judge_answers(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    del config
    right = [words_of(trial.result.right) == words_of(trial.result.said) for trial in trials]
    return {"vision_answers_right": 100 * float(np.mean(right))}


PARTS: tuple[Part, ...] = (
    Part(name="gaze", levels=frozenset({5}), plan=_plan_gaze, judge=_judge_gaze),
    Part(
        name="scenes", levels=frozenset({5}), plan=_plan_scenes, judge=_judge_scenes, cases=_wrong_scenes
    ),
    Part(
        name="asked about scenes", levels=frozenset({5}), plan=_plan_answers, judge=_judge_answers,
        cases=lambda trial: [asdict(trial.result)],
    ),
)  # fmt: skip

"""Gaze that is known, late or not, and scenes."""

from pathlib import Path

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Colour
from training.evaluation.parts import FULL, EvaluationConfig, PairTimes, Trial
from training.evaluation.seeing import (
    EDGE,
    PARTS,
    Gaze,
    VisionTrial,
    gaze_measures,
    scene,
    stroll,
)


def watched(seed: int, lag: int) -> Gaze:
    """A gaze that follows `lag` frames late, with a blink, noise, and nine tenths of the way."""
    rng = np.random.default_rng(seed)
    path = stroll(rng, 300)
    gaze = 0.9 * np.roll(path, lag, axis=0) + 0.02 * rng.standard_normal(path.shape)
    gaze[50:56] = np.nan
    return Gaze(user=path, gaze=gaze)


@pytest.mark.parametrize("lag", [0, 7])
def test_a_late_gaze_is_found_late(lag: int) -> None:
    found = gaze_measures([watched(1, lag), watched(2, lag)], 0.04)
    assert found["gaze_lag_frames"] == lag + 5
    assert min(found["gaze_x"], found["gaze_y"]) > 0.98
    assert found["gaze_off"] < 0.1


def test_eyes_that_do_not_move_follow_nobody() -> None:
    path = stroll(np.random.default_rng(0), 100)
    assert gaze_measures([Gaze(user=path, gaze=np.zeros((100, 2)))], 0.04)["gaze_x"] == 0.0
    shut = gaze_measures([Gaze(user=path, gaze=np.full((100, 2), np.nan))], 0.04)
    assert shut["gaze_x"] == 0.0
    assert np.isnan(shut["gaze_off"])


def test_a_stroll_stays_in_the_picture() -> None:
    path = stroll(np.random.default_rng(3), 500)
    assert path.shape == (500, 2)
    assert np.abs(path).max() <= EDGE
    assert path.std(0).min() > 0.2


def test_scenes_are_of_every_kind_and_always_the_same() -> None:
    scenes = [scene(np.random.default_rng((5, index)), 1) for index in range(60)]
    assert {bool(sight.present[-1]) for sight in scenes} == {True, False}
    assert {int(sight.colour[-1]) for sight in scenes} == set(map(int, Colour))
    assert np.array_equal(scenes[7].frames, scene(np.random.default_rng((5, 7)), 1).frames)


def test_both_must_be_right() -> None:
    part = next(part for part in PARTS if part.name == "scenes")
    right = VisionTrial(there=True, thought_there=True, colour="red", thought_colour="red")
    wrong = VisionTrial(there=False, thought_there=True, colour="red", thought_colour="red")
    trials = [Trial(kind="scene", result=one) for one in (right, wrong, right, right)]
    config = EvaluationConfig(counts=FULL, seed=0, data=Path(), pair=PairTimes(p50_ms=0, p99_ms=0))
    assert part.judge(trials, config) == {
        "scenes": 4, "present_right": 75, "colour_right": 100, "vision_right": 75,
    }  # fmt: skip
    assert sum(len(part.cases(trial)) for trial in trials) == 1

"""How the face moves over time."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.faces.motion import NOD_SHAPE, gestures, poses

SPEECH = [("pau", 20.0)] + [("aa", 20.0 + 0.2 * i) if i % 2 else ("b", 20.0 + 0.2 * i) for i in range(1, 100)]
MINUTE = 60 * 25


def long_gestures(seed: int = 3, minutes: int = 20) -> NDArray[np.float32]:
    return gestures(poses([], minutes * MINUTE, np.random.default_rng(seed)))


def test_there_is_a_pose_for_each_frame_and_all_stay_in_range() -> None:
    chosen = poses(SPEECH, MINUTE, np.random.default_rng(0))
    assert len(chosen) == MINUTE
    for pose in chosen:
        assert all(0 <= x <= 1 for x in (pose.open, pose.blink, pose.brow, pose.nod))
        assert all(-1 <= x <= 1 for x in (pose.gaze_x, pose.gaze_y, pose.head_x, pose.head_y))


def test_the_same_seed_moves_the_same() -> None:
    one, other, third = (poses(SPEECH, 200, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == other
    assert one != third


def test_lips_open_with_the_vowels_and_rest_in_silence() -> None:
    chosen = poses(SPEECH, MINUTE, np.random.default_rng(0))
    assert max(pose.open for pose in chosen[: 19 * 25]) < 0.05
    assert max(pose.open for pose in chosen[21 * 25 : 38 * 25]) > 0.7


def test_gestures_are_gaze_and_nod_of_each_frame() -> None:
    chosen = poses(SPEECH, 300, np.random.default_rng(5))
    made = gestures(chosen)
    assert made.dtype == np.float32
    assert made == pytest.approx(np.array([[p.gaze_x, p.gaze_y, p.nod] for p in chosen]))
    assert gestures([]).shape == (0, 3)


def test_a_nod_goes_down_and_up_in_about_half_a_second() -> None:
    assert NOD_SHAPE.max() == pytest.approx(1)
    assert np.allclose(NOD_SHAPE, NOD_SHAPE[::-1])
    assert min(NOD_SHAPE) > 0
    assert 0.4 <= (len(NOD_SHAPE) + 1) / 25 <= 0.5


def test_nods_have_their_shape_and_come_every_four_seconds_or_so() -> None:
    nod = long_gestures()[:, 2]
    edges = np.diff(np.concatenate([[0], nod > 0, [0]]).astype(int))
    starts, ends = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]
    assert 3 < len(nod) / 25 / len(starts) < 5
    assert set(ends[:-1] - starts[:-1]) == {len(NOD_SHAPE), 2 * len(NOD_SHAPE)}
    once = nod[starts[0] :][: len(NOD_SHAPE)]
    assert once / once.max() == pytest.approx(NOD_SHAPE, abs=1e-6)


def test_gaze_is_straight_ahead_often_and_yet_covers_all_places() -> None:
    gaze = long_gestures()[:, :2]
    assert 0.15 < (np.abs(gaze) < 0.05).all(axis=1).mean() < 0.6
    places, _, _ = np.histogram2d(gaze[:, 0], gaze[:, 1], bins=4, range=[[-1, 1], [-1, 1]])
    assert places.min() > 0.01 * len(gaze)


def test_long_looks_to_the_side_and_smooth_pursuit_both_occur() -> None:
    gaze = long_gestures()[:, :2]
    speed = np.abs(np.diff(gaze, axis=0)).max(axis=1)
    aside = np.abs(gaze[1:]).max(axis=1) > 0.6
    second = np.ones(25)
    steady = np.convolve((speed < 1e-4) & aside, second, "valid") == 25
    pursuit = np.convolve((speed > 0.005) & (speed < 0.15), second, "valid") == 25
    assert steady.sum() > 25 * 20
    assert pursuit.sum() > 25 * 20

"""Gaze and nods as measured from the picture, against the poses that were drawn."""

import dataclasses

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.faces.face import Pose, draw
from training.data.faces.gaze import gaze_of, nod_of
from training.data.faces.motion import gestures, poses

ONE_SIDED = {"open", "wide", "round", "teeth", "tongue", "blink", "brow", "nod"}


def random_poses(number: int, seed: int) -> list[Pose]:
    rng = np.random.default_rng(seed)
    names = Pose.__dataclass_fields__
    return [
        Pose(**{name: rng.uniform(0 if name in ONE_SIDED else -1, 1) for name in names})
        for _ in range(number)
    ]


def blurred(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.GaussianBlur(frame, (0, 0), 0.7))


def correlations(frames: list[NDArray[np.uint8]], chosen: list[Pose]) -> tuple[float, float, float]:
    """Of x and of y, over the frames in which the eyes are seen, and the share of these."""
    pairs = [
        (*seen, pose.gaze_x, pose.gaze_y)
        for frame, pose in zip(frames, chosen, strict=True)
        if (seen := gaze_of(frame)) is not None
    ]
    table = np.corrcoef(np.array(pairs).T)
    return float(table[0, 2]), float(table[1, 3]), len(pairs) / len(frames)


@pytest.mark.parametrize(
    ("size", "x_least", "y_least"), [(128, 0.99, 0.97), (256, 0.99, 0.97), (64, 0.97, 0.9)]
)
def test_gaze_is_read_whatever_else_the_face_does(size: int, x_least: float, y_least: float) -> None:
    chosen = [dataclasses.replace(pose, blink=0.35 * pose.blink) for pose in random_poses(300, seed=1)]
    x, y, share = correlations([draw(pose, size) for pose in chosen], chosen)
    assert x > x_least
    assert y > y_least
    assert share > 0.95


def test_gaze_is_read_from_a_blurred_picture() -> None:
    chosen = [dataclasses.replace(pose, blink=0) for pose in random_poses(300, seed=2)]
    x, y, share = correlations([blurred(draw(pose)) for pose in chosen], chosen)
    assert x > 0.97
    assert y > 0.95
    assert share == 1


@pytest.mark.parametrize("x", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("y", [-1.0, 0.0, 1.0])
def test_gaze_comes_in_the_units_of_the_pose(x: float, y: float) -> None:
    assert gaze_of(draw(Pose(gaze_x=x, gaze_y=y))) == pytest.approx((x, y), abs=0.2)


@pytest.mark.parametrize("pose", [Pose(blink=0.7), Pose(blink=1), Pose(blink=1, gaze_x=1, nod=1)])
def test_shut_eyes_look_nowhere(pose: Pose) -> None:
    assert gaze_of(draw(pose)) is None


@pytest.mark.parametrize("grey", [0, 255])
def test_a_picture_without_the_face_does_no_harm(grey: int) -> None:
    assert np.isfinite(nod_of(np.full((128, 128, 3), grey, np.uint8)))


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("nod", [0.0, 0.5, 1.0])
def test_a_nod_comes_in_the_units_of_the_pose(nod: float, size: int) -> None:
    assert nod_of(draw(Pose(nod=nod), size)) == pytest.approx(nod, abs=0.2)


def test_nods_are_told_from_the_sway_of_the_head_through_blinks_and_speech() -> None:
    chosen = random_poses(300, seed=3)
    measured = [nod_of(blurred(draw(pose))) for pose in chosen]
    assert np.corrcoef(measured, [pose.nod for pose in chosen])[0, 1] > 0.97


def test_nods_are_followed_over_time() -> None:
    chosen = poses([], 500, np.random.default_rng(4))
    measured = [nod_of(draw(pose)) for pose in chosen]
    assert np.corrcoef(measured, gestures(chosen)[:, 2])[0, 1] > 0.97

"""The drawn face: its parts move where the pose says, and nothing else does."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.faces.face import HAIR, SKIN, Pose, background, draw

MOUTH = (slice(70, 96), slice(46, 82))
EYES = (slice(46, 74), slice(38, 90))


def changed(pose: Pose, other: Pose) -> NDArray[np.bool_]:
    """Which pixels differ visibly, [128, 128]."""
    return np.asarray((np.abs(draw(pose).astype(int) - draw(other)) > 8).any(axis=-1))


def iris_rows(frame: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The row of each pixel of the eyes that is green, as nothing near them is."""
    eyes = frame[EYES].astype(int)
    return np.nonzero(eyes[..., 1] > eyes[..., 0] + 30)[0]


@pytest.mark.parametrize("size", [64, 128, 256])
def test_a_frame_has_the_size_asked_for_and_the_wall_behind(size: int) -> None:
    frame = draw(Pose(), size)
    assert frame.shape == (size, size, 3)
    assert frame.dtype == np.uint8
    assert np.abs(frame[:, 0].astype(int)[: size // 2] - background(size)[: size // 2, 0]).max() <= 2


def test_the_same_pose_is_drawn_the_same() -> None:
    pose = Pose(open=0.4, gaze_x=0.3, nod=0.5)
    assert np.array_equal(draw(pose), draw(dataclasses.replace(pose)))


@pytest.mark.parametrize("gaze", [Pose(gaze_x=1), Pose(gaze_x=-1), Pose(gaze_y=1), Pose(gaze_y=-1)])
def test_gaze_moves_the_eyes_alone(gaze: Pose) -> None:
    moved = changed(gaze, Pose())
    assert moved[EYES].sum() > 40
    moved[EYES] = False
    assert not moved.any()


@pytest.mark.parametrize("lips", [Pose(open=1), Pose(round=1), Pose(open=0.5, teeth=1), Pose(wide=1)])
def test_lips_move_the_mouth_alone(lips: Pose) -> None:
    moved = changed(lips, Pose())
    assert moved[MOUTH].sum() > 20
    moved[MOUTH] = False
    assert not moved.any()


def test_a_blink_hides_the_iris_step_by_step() -> None:
    seen = [len(iris_rows(draw(Pose(blink=blink)))) for blink in (0, 0.4, 0.7, 1)]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 30
    assert seen[-1] == 0


@pytest.mark.parametrize("gaze", [-1.0, 1.0])
def test_shut_lids_look_the_same_wherever_the_eyes_turn(gaze: float) -> None:
    assert not changed(Pose(blink=1, gaze_x=gaze, gaze_y=gaze), Pose(blink=1)).any()


@pytest.mark.parametrize("brow", [0.0, 1.0])
def test_skin_shows_between_brow_and_lid(brow: float) -> None:
    lit = draw(Pose(brow=brow))[40:60, 50, 0] > (HAIR[0] + SKIN[0]) / 2  # down to the middle of the left eye
    lid = 19 - int(np.argmax(lit[::-1]))
    assert lit[lid - 1 : lid + 1].all()
    assert not lit[: lid - 1].all()


def test_a_nod_lowers_the_features_more_than_the_crown() -> None:
    rest, down = draw(Pose()), draw(Pose(nod=1))

    def top_of_head(frame: NDArray[np.uint8]) -> int:
        return int(np.argmax(frame[:, 64, 0] > 85))

    crown, eyes = top_of_head(down) - top_of_head(rest), iris_rows(down).mean() - iris_rows(rest).mean()
    assert 2 <= crown <= 4
    assert 4 <= eyes <= 6

"""Lips whose movement is known."""

import dataclasses

import numpy as np
import pytest

from training.data.faces.face import Pose, draw
from training.evaluation.lips import drawn_openings, lip_sync, opening

WORDS = ["pau", "hh", "ax", "l", "ow", "ow", "ow", "pau", "w", "er", "er", "l", "d", "aa", "aa", "pau"] * 3
PHONES = [(name, 0.04 * (index + 1)) for index, name in enumerate(WORDS)]
FRAMES = len(WORDS) + 24


def test_the_dark_of_the_mouth_grows_with_its_opening_wherever_the_head_is() -> None:
    for head in (-1.0, 0.0, 1.0):
        pose = Pose(head_x=head, head_y=-head)
        seen = [opening(draw(dataclasses.replace(pose, open=x))) for x in (0.0, 0.3, 0.6, 1.0)]
        assert seen == sorted(seen)
        assert seen[0] < 0.1
        assert seen[-1] > 3 * seen[0] + 0.1


@pytest.mark.parametrize("lag", [-2, 0, 3])
def test_lips_that_are_late_are_found_late(lag: int) -> None:
    drawn = drawn_openings(PHONES, FRAMES, 128)
    found = lip_sync([(np.roll(drawn, lag), drawn)] * 2)
    assert found["lip_best_lag_frames"] == lag
    assert found["lip_correlation_best"] > 0.9
    assert (found["lip_correlation"] == found["lip_correlation_best"]) == (lag == 0)


def test_a_face_that_does_not_move_has_no_lips() -> None:
    drawn = drawn_openings(PHONES, FRAMES, 128)
    assert lip_sync([(np.zeros(FRAMES), drawn)])["lip_correlation_best"] == 0.0

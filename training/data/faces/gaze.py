"""Where the agent looks and whether it nods, measured from its picture alone.

What is known of the drawn face (`face.py`) is used: its colours, and how far its parts can move. Edges and
centres of soft masks are measured, which a codec's blur leaves in place. All lengths within this file are in
the hundred parts of the picture's side in which the face is laid out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.data.faces.face import EYE, EYE_HALF, HAIR, SIZE, SKIN, SKIN_SHADE

Box = tuple[float, float, float, float]  # top, bottom, left, right
# Wherever the head is, each box holds its eye whole and of the rest of the face skin, lashes and brow alone.
EYE_BOXES: tuple[Box, Box] = ((38.5, 56.5, 30.5, 48.5), (38.5, 56.5, 51.5, 69.5))
# Red minus blue is 6 or less for all within the lids and 46 or more for all around them.
EYE_TINT, AROUND_TINT = 10.0, 42.0
# The pupil, which the lids seldom reach, shall count for much more than the rest of the iris.
DARK_POWER = 4
# Fitted to drawn faces of random pose, a quarter of them with lids up to 0.35 shut.
GAZE_X_OF = (0.46, -0.08)  # the glint lies off the middle
GAZE_Y_OF = (0.92, 0.33, 0.75)
LEAST_OPEN = 2.7  # mean distance of the lids with which the iris is still seen well; 5.4 when wide open

# Down the middle of the face: from hair to forehead, and from the neck up to the hair below the chin.
MIDDLE = (48.0, 52.0)
FRINGE_FROM, NECK = 22.0, 90.0
TEMPLES = (37.0, 47.0)  # rows in which the hair is widest, against the wall on both sides
WALL_TINT, HAIR_TINT = -47.0, 52.0  # red minus blue
# From the distance of forehead and chin, and from how far the head is to the right of the middle.
NOD_OF = (0.70, -0.19, 32.74)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Eye:
    """Middle of the iris; middle and mean height of what the lids leave open."""

    iris_x: float
    iris_y: float
    x: float
    y: float
    height: float


def gaze_of(frame: NDArray[np.uint8]) -> tuple[float, float] | None:
    """Where the eyes of a frame [H, W, 3] look, (x, y) in about [-1, 1] as in Pose; None if they are shut.

    The iris is measured against the lids, so the position of the head does not matter.
    """
    eyes = [_eye(frame, box) for box in EYE_BOXES]
    if min(eye.height for eye in eyes) < LEAST_OPEN:
        return None
    x = sum(eye.iris_x - eye.x for eye in eyes) / len(eyes)
    height = sum(eye.height for eye in eyes) / len(eyes)
    # The lower lid keeps still when the eye turns; the upper one goes along, and comes down in a blink.
    above = sum(eye.iris_y - eye.y - eye.height / 2 for eye in eyes) / len(eyes)
    by_iris, by_height, offset = GAZE_Y_OF
    return GAZE_X_OF[0] * x + GAZE_X_OF[1], by_iris * above + by_height * height + offset


def nod_of(frame: NDArray[np.uint8]) -> float:
    """How far the chin of a frame [H, W, 3] is down, as in Pose: 0 at rest, 1 in a full nod.

    A nod lowers the forehead more than the chin; a head that sways takes both along, which does not count.
    """
    scale: float = frame.shape[0] / SIZE
    left, right, start, neck = (round(edge * scale) for edge in (*MIDDLE, FRINGE_FROM, NECK))
    red: NDArray[np.float64] = frame[:, left:right, 0].mean(axis=1)
    forehead = start + _crossing(red[start:neck], (HAIR[0] + SKIN[0]) / 2)
    chin = neck - _crossing(-red[:neck][::-1], -(HAIR[0] + SKIN_SHADE[0]) / 2)
    by_distance, by_place, offset = NOD_OF
    # The fringe is cut at a slant, so that its edge is lower or higher where the head is to one side.
    return by_distance * (forehead - chin) / scale + by_place * _place(frame, scale) + offset


def _place(frame: NDArray[np.uint8], scale: float) -> float:
    """How far the middle of the head is to the right of the picture's."""
    top, bottom = (round(edge * scale) for edge in TEMPLES)
    rows = frame[top:bottom].astype(np.float64)
    tint: NDArray[np.float64] = (rows[..., 0] - rows[..., 2]).mean(axis=0)
    level = (WALL_TINT + HAIR_TINT) / 2
    return (_crossing(tint, level) - _crossing(tint[::-1], level)) / scale / 2


def _crossing(values: NDArray[np.float64], level: float) -> float:
    """Where the values first rise above the level, between samples, each of which is as wide as 1."""
    at = int(np.argmax(values > level))
    if at == 0:
        return 0.0  # it is not the drawn face
    return at + 0.5 - float(values[at] - level) / float(values[at] - values[at - 1])


def _eye(frame: NDArray[np.uint8], box: Box) -> _Eye:
    scale = frame.shape[0] / SIZE
    top, bottom, left, right = (round(edge * scale) for edge in box)
    red, green, blue = np.moveaxis(frame[top:bottom, left:right].astype(np.float64), 2, 0)
    inside = np.clip((AROUND_TINT - red + blue) / (AROUND_TINT - EYE_TINT), 0, 1)
    iris = inside * np.clip(1 - green / EYE[1], 0, 1) ** DARK_POWER
    rows, columns = (np.indices(inside.shape) + 0.5) / scale

    def middle(weight: NDArray[np.float64], where: NDArray[np.float64]) -> float:
        return float((weight * where).sum() / (weight.sum() + 1e-9))

    return _Eye(
        iris_x=middle(iris, columns), iris_y=middle(iris, rows),
        x=middle(inside, columns), y=middle(inside, rows),
        height=float(inside.sum()) / scale**2 / (2 * EYE_HALF),
    )  # fmt: skip

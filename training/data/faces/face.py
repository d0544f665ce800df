"""The agent's face, drawn: one fixed identity, moved by a few parameters a frame.

Everything is drawn at twice the size with sub-pixel coordinates and then averaged down, so that slow
movements stay smooth.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Points = NDArray[np.float64]
BACKGROUND_TOP, BACKGROUND_BOTTOM = (38, 70, 83), (62, 108, 118)
SKIN, SKIN_SHADE, BLUSH = (243, 201, 165), (226, 176, 139), (240, 170, 145)
HAIR, BROW, SHIRT, SHIRT_SHADE = (92, 52, 40), (82, 46, 36), (231, 111, 81), (200, 90, 66)
EYE, IRIS, IRIS_RIM, PUPIL, GLINT = (
    (252, 250, 246), (44, 122, 98), (18, 62, 54), (14, 22, 24), (255, 255, 255),
)  # fmt: skip
LIP, MOUTH, TEETH, TONGUE = (197, 96, 92), (94, 30, 36), (250, 246, 240), (214, 110, 112)

SUBPIXEL_BITS = 4
SIZE = 100.0  # the face is laid out on a 100 x 100 square

# How far the iris moves at a gaze of 1: 3 and 2 pixels in a picture of 128.
GAZE_X, GAZE_Y = 2.5, 1.75
# How far a full nod lowers things: crown and chin less than the features, so that the head seems to tip.
NOD_HEAD, NOD_MOUTH, NOD_FEATURES = 2.4, 2.8, 3.8
EYE_HALF = 6.4  # from the middle of an eye to its corners
EYE_APART, EYE_ROW, BROW_ROW = 10.5, -1.0, -8.7  # from the middle of the head

# Along a lid or a brow, from the end at the nose (-1) to the one at the temple (1).
_ALONG = np.linspace(-1, 1, 13)
_BULGE = (1 - np.abs(_ALONG) ** 2.3) ** 0.85
_SLANT = -0.2 * _ALONG  # the outer corner of an eye lies a little higher
_LASH = np.interp(_ALONG, [-1, -5 / 6, 5 / 6, 1], [0.2, 0.575, 1.325, 0.6])
_BROW_ARCH = -1.9 * (1 - (_ALONG - 0.1) ** 2)
_BROW_WIDTH = np.interp(_ALONG, [-1, -0.8, -0.3, 1], [0.9, 1.7, 1.8, 0.6])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pose:
    """One frame of the face. Everything is 0 at rest; mouth, lids and nod go to 1, the rest about -1 to 1."""

    open: float = 0.0
    wide: float = 0.0
    round: float = 0.0
    teeth: float = 0.0
    tongue: float = 0.0
    blink: float = 0.0
    gaze_x: float = 0.0
    gaze_y: float = 0.0
    brow: float = 0.0
    head_x: float = 0.0
    head_y: float = 0.0
    breath: float = 0.0
    nod: float = 0.0  # 1 has the chin fully down


class _Canvas:
    """Ellipses, arcs and shapes in face coordinates, at `scale` pixels each."""

    def __init__(self, image: NDArray[np.uint8], scale: float) -> None:
        self.image, self.scale = image, scale

    def _fixed(self, value: float) -> int:
        return round((value * self.scale - 0.5) * (1 << SUBPIXEL_BITS))

    def _length(self, value: float) -> int:
        return max(0, round(value * self.scale * (1 << SUBPIXEL_BITS)))

    def ellipse(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        cv2.ellipse(
            self.image, (self._fixed(x), self._fixed(y)), (self._length(rx), self._length(ry)),
            0, 0, 360, colour, -1, cv2.LINE_AA, SUBPIXEL_BITS,
        )  # fmt: skip

    def arc(  # noqa: PLR0917 - as in all drawing: where, how large, from and to, in which colour
        self, x: float, y: float, rx: float, ry: float, start: float, end: float, colour: Colour, width: float
    ) -> None:
        cv2.ellipse(
            self.image, (self._fixed(x), self._fixed(y)), (self._length(rx), self._length(ry)),
            0, start, end, colour, max(1, round(width * self.scale)), cv2.LINE_AA, SUBPIXEL_BITS,
        )  # fmt: skip

    def shape(self, x: Points, y: Points, colour: Colour) -> None:
        """The area within a closed line of points."""
        points = np.stack([x, y], axis=1) * self.scale - 0.5
        fixed = np.rint(points * (1 << SUBPIXEL_BITS)).astype(np.int32)
        cv2.fillPoly(self.image, [fixed], colour, cv2.LINE_AA, SUBPIXEL_BITS)

    def band(self, x: Points, top: Points, bottom: Points, colour: Colour) -> None:
        """The area between two lines over the same x."""
        self.shape(np.concatenate([x, x[::-1]]), np.concatenate([top, bottom[::-1]]), colour)


def background(pixels: int) -> NDArray[np.uint8]:
    """The still wall behind the agent, [pixels, pixels, 3] RGB."""
    share = np.linspace(0, 1, pixels)[:, None, None]
    wall = np.array(BACKGROUND_TOP) * (1 - share) + np.array(BACKGROUND_BOTTOM) * share
    return np.broadcast_to(wall, (pixels, pixels, 3)).astype(np.uint8)


def draw(pose: Pose, size: int = 128) -> NDArray[np.uint8]:
    """Draw one frame [size, size, 3] RGB."""
    image = np.ascontiguousarray(background(2 * size))
    canvas = _Canvas(image, 2 * size / SIZE)
    x, y = 50 + 2.2 * pose.head_x, 47 + 2.2 * pose.head_y
    _draw_body(canvas, pose.breath)
    _draw_head(canvas, x, y + NOD_HEAD * pose.nod)
    level = y + NOD_FEATURES * pose.nod
    for side in (-1, 1):
        _draw_eye(canvas, x + side * EYE_APART, level + EYE_ROW, side, pose)
    _draw_fringe(canvas, x, level)
    for side in (-1, 1):
        canvas.ellipse(x + side * 15, level + 9, 4.4, 3.0, BLUSH)
        _draw_brow(canvas, x + side * EYE_APART, level + BROW_ROW - 1.3 * pose.brow, side)
    canvas.arc(x + 0.6 * pose.head_x, level + 6.5, 2.4, 1.8, 20, 160, SKIN_SHADE, 1.1)
    _draw_mouth(canvas, x, y + 15.5 + NOD_MOUTH * pose.nod, pose)
    return np.asarray(cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA))


def _draw_body(canvas: _Canvas, breath: float) -> None:
    rise = 0.9 * breath
    canvas.ellipse(50, 104 - rise, 38 + 0.5 * rise, 26, SHIRT_SHADE)
    canvas.ellipse(50, 106 - rise, 36 + 0.5 * rise, 26, SHIRT)
    canvas.ellipse(50, 77 - 0.4 * rise, 9, 11, SKIN_SHADE)


def _draw_head(canvas: _Canvas, x: float, y: float) -> None:
    canvas.ellipse(x, y - 5, 30, 31, HAIR)
    canvas.ellipse(x, y + 12, 29, 21, HAIR)
    for side in (-1, 1):
        canvas.ellipse(x + side * 23.5, y + 1.5, 4, 6, SKIN_SHADE)
    canvas.ellipse(x, y + 2, 23.5, 27.5, SKIN)


def _draw_fringe(canvas: _Canvas, x: float, y: float) -> None:
    canvas.ellipse(x - 8, y - 22, 17.5, 9.3, HAIR)
    canvas.ellipse(x + 13, y - 22.5, 11.5, 8.2, HAIR)


def _draw_eye(canvas: _Canvas, x: float, y: float, side: int, pose: Pose) -> None:
    """The white, the iris, then two lids of skin that cover what sticks out, and lashes on the upper one."""
    shut, along = pose.blink, x + side * EYE_HALF * _ALONG
    corners = y + _SLANT
    # The upper lid goes along with the gaze, as lids do; shut, both meet a little below the middle.
    upper = corners - (4.9 - 0.7 * pose.gaze_y) * (1 - shut) * _BULGE + 2.4 * shut * _BULGE
    lower = corners + (4.3 - 1.9 * shut) * _BULGE
    canvas.band(along, np.minimum(upper, lower), lower, EYE)
    if shut < 0.95:  # it would shine through the seam of lids that are shut
        ix, iy = x + GAZE_X * pose.gaze_x, y - 0.2 + GAZE_Y * pose.gaze_y
        canvas.ellipse(ix, iy, 3.7, 3.8, IRIS_RIM)
        canvas.ellipse(ix, iy + 0.2, 3.0, 3.0, IRIS)
        canvas.ellipse(ix, iy, 1.9, 2.0, PUPIL)
        canvas.ellipse(ix - 1.2, iy - 1.3, 0.9, 0.9, GLINT)
    canvas.band(along, np.minimum(upper, y - 7.0), upper, SKIN)
    canvas.band(along, lower, np.maximum(lower, y + 6.5), SKIN)
    wing = along + side * 0.5 * (_ALONG == 1)
    canvas.band(wing, upper - _LASH - 0.3 * (_ALONG == 1), upper + 0.25, HAIR)


def _draw_brow(canvas: _Canvas, x: float, y: float, side: int) -> None:
    arch = y + _BROW_ARCH
    canvas.band(x + side * 6.2 * _ALONG, arch - _BROW_WIDTH / 2, arch + _BROW_WIDTH / 2, BROW)


def _draw_mouth(canvas: _Canvas, x: float, y: float, pose: Pose) -> None:
    half = 7.0 + 2.2 * pose.wide - 3.6 * pose.round
    gap = 0.5 + 5.6 * pose.open
    lip = 1.5 + 0.9 * pose.round
    canvas.ellipse(x, y + 0.4 * gap, half + lip * 0.7, gap + lip, LIP)
    canvas.ellipse(x, y + 0.4 * gap, half, gap, MOUTH)
    if pose.tongue > 0.05 and gap > 1:
        canvas.ellipse(x, y + gap * (1.1 - 0.5 * pose.tongue), half * 0.6, gap * 0.5, TONGUE)
    if pose.teeth > 0.05:
        canvas.ellipse(x, y + 0.4 * gap - gap * 0.5, half * 0.78, max(0.3, gap * 0.45 * pose.teeth), TEETH)

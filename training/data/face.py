"""The agent's face, drawn: one fixed identity, moved by a few parameters a frame.

Everything is drawn at twice the size with sub-pixel coordinates and then averaged down, so that slow
movements stay smooth.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
BACKGROUND_TOP, BACKGROUND_BOTTOM = (38, 70, 83), (62, 108, 118)
SKIN, SKIN_SHADE, BLUSH = (243, 201, 165), (226, 176, 139), (240, 170, 145)
HAIR, BROW, SHIRT, SHIRT_SHADE = (92, 52, 40), (82, 46, 36), (231, 111, 81), (200, 90, 66)
EYE, IRIS, PUPIL, GLINT = (252, 250, 246), (60, 120, 96), (20, 26, 30), (255, 255, 255)
LIP, MOUTH, TEETH, TONGUE = (197, 96, 92), (94, 30, 36), (250, 246, 240), (214, 110, 112)

SUBPIXEL_BITS = 4
SIZE = 100.0  # the face is laid out on a 100 x 100 square


@dataclass(frozen=True, kw_only=True, slots=True)
class Pose:
    """One frame of the face. Everything is 0 at rest; mouth and lids go to 1, the others about -1 to 1."""

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


class _Canvas:
    """Ellipses and polygons in face coordinates, at `scale` pixels each."""

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
    _draw_head(canvas, x, y)
    for side in (-1, 1):
        _draw_eye(canvas, x + side * 10.5, y - 2, pose)
    _draw_fringe(canvas, x, y)
    for side in (-1, 1):
        canvas.ellipse(x + side * 15, y + 9, 4.4, 3.0, BLUSH)
        lift = 1.6 * pose.brow
        canvas.arc(x + side * 10.5, y - 7.5 - lift, 6.5, 4, 205, 335, BROW, 1.7)
    canvas.arc(x + 0.6 * pose.head_x, y + 6.5, 2.4, 1.8, 20, 160, SKIN_SHADE, 1.1)
    _draw_mouth(canvas, x, y + 15.5, pose)
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
    canvas.ellipse(x - 8, y - 21, 18, 10.5, HAIR)
    canvas.ellipse(x + 13, y - 22, 12, 9, HAIR)


def _draw_eye(canvas: _Canvas, x: float, y: float, pose: Pose) -> None:
    canvas.ellipse(x, y, 5.4, 5.2, EYE)
    ix, iy = x + 2.2 * pose.gaze_x, y + 1.6 * pose.gaze_y
    canvas.ellipse(ix, iy, 3.3, 3.4, IRIS)
    canvas.ellipse(ix, iy, 1.7, 1.8, PUPIL)
    canvas.ellipse(ix - 1.1, iy - 1.2, 0.9, 0.9, GLINT)
    # Two lids of skin, each an ellipse that is pushed over the eye from outside.
    upper = 11.6 - 8.0 * pose.blink
    canvas.ellipse(x, y - upper, 7.4, 6.4, SKIN)
    canvas.ellipse(x, y + 11.8 - 3.2 * pose.blink, 7.4, 6.4, SKIN)
    canvas.arc(x, y - upper, 7.0, 6.4, 35, 145, HAIR, 1.1)


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

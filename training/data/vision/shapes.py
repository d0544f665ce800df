"""Flat shapes that move: what the pictures of users are drawn with.

Shape suffixes: T frames, N corners. Positions are pixels of the 64 x 64 picture, x right and y down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

SIZE = 64  # pixels, both ways
SUBPIXEL_BITS = 4

Rgb = tuple[float, float, float]
Floats = NDArray[np.float32]
Reals = NDArray[np.floating]
Picture = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One convex polygon in one colour over time; corners in 1/16 pixel, [T, N, 2]."""

    corners_TN2: NDArray[np.int32]
    colour: Rgb


@dataclass(frozen=True, kw_only=True, slots=True)
class Joint:
    """Something's own coordinates over time: where its origin is and where its two axes point, in pixels."""

    origin_T2: Floats
    axes_T22: Floats

    @classmethod
    def of(cls, origin_T2: Reals, scale_T: Reals, roll_T: Reals, aspect: float = 1.0) -> Joint:
        """Axes of `scale_T` pixels, turned by `roll_T` radians, the picture then `aspect` times as wide."""
        cos, sin = scale_T * np.cos(roll_T), scale_T * np.sin(roll_T)
        axes = np.stack([cos * aspect, sin, -sin * aspect, cos], axis=1).reshape(-1, 2, 2)
        return cls(origin_T2=origin_T2.astype(np.float32), axes_T22=axes.astype(np.float32))

    def shape(
        self, outline_N2: Floats, colour: Rgb, shift: Floats | None = None, stretch: Floats | None = None
    ) -> Shape:
        """The outline as it moves with this; `stretch` and then `shift` ([T, 2]) change it before."""
        local = outline_N2 if stretch is None else outline_N2 * stretch[:, None]
        if shift is not None:
            local = local + shift[:, None]
        corners = local @ self.axes_T22
        corners += self.origin_T2[:, None]
        corners *= 1 << SUBPIXEL_BITS
        return Shape(corners_TN2=corners.astype(np.int32), colour=colour)


def floats(values: Sequence[float] | Sequence[Sequence[float]]) -> Floats:
    """The numbers as an array."""
    return np.array(values, np.float32)


_ANGLES = np.arange(16) * (2 * np.pi / 16)
CIRCLE = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1).astype(np.float32)


def ellipse(x: float, y: float, rx: float, ry: float) -> Floats:
    """Outline [16, 2]."""
    return np.asarray(CIRCLE * floats((rx, ry)) + floats((x, y)), np.float32)


def box(left: float, top: float, right: float, bottom: float) -> Floats:
    """Outline [4, 2]."""
    return floats([(left, top), (right, top), (right, bottom), (left, bottom)])


def polygon(*corners: tuple[float, float]) -> Floats:
    """Outline [N, 2], its dents filled."""
    return np.asarray(cv2.convexHull(floats(corners))[:, 0], np.float32)


def mirrored(*corners: tuple[float, float]) -> Floats:
    """Outline of the right half's corners and their mirror images, its dents filled."""
    return polygon(*corners, *((-x, y) for x, y in corners))


def limb(start: tuple[float, float], end: tuple[float, float], width: float, end_width: float) -> Floats:
    """Outline [4, 2] of a stick that widens from `width` to `end_width`."""
    along = math.atan2(end[1] - start[1], end[0] - start[0])
    nx, ny = -math.sin(along) / 2, math.cos(along) / 2
    return floats([
        (start[0] + nx * width, start[1] + ny * width), (end[0] + nx * end_width, end[1] + ny * end_width),
        (end[0] - nx * end_width, end[1] - ny * end_width), (start[0] - nx * width, start[1] - ny * width),
    ])  # fmt: skip


def paint(frames_THWC: Picture, shapes: Iterable[Shape]) -> None:
    """Draw the shapes into the frames [T, 64, 64, 3], the first behind all others."""
    plain = [(shape.corners_TN2, shape.colour) for shape in shapes]
    for index, frame in enumerate(frames_THWC):
        for corners_TN2, colour in plain:
            cv2.fillConvexPoly(frame, corners_TN2[index], colour, cv2.LINE_AA, SUBPIXEL_BITS)


def shaded(colour: Rgb, gain: float) -> Rgb:
    """The colour, darker (gain < 1) or lighter."""
    return min(255.0, colour[0] * gain), min(255.0, colour[1] * gain), min(255.0, colour[2] * gain)


def apart(one: Rgb, other: Rgb) -> float:
    """How different two colours are: the largest difference of a part, 0 to 255."""
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]), abs(one[2] - other[2]))


def mixed(one: Rgb, other: Rgb, share: float) -> Rgb:
    """`share` of the other colour in the first."""
    return (
        one[0] + share * (other[0] - one[0]),
        one[1] + share * (other[1] - one[1]),
        one[2] + share * (other[2] - one[2]),
    )

"""Says what is in a piece of a film from its frames: what judges the pocket model. Nothing in it is learned.

A place always looks the same, so what differs from its picture is the things. They are counted, followed from
frame to frame, and compared with outlines; colours are the nearest of the paints. How often it is right on
drawn films stands beside what it says of the model's.
"""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.models.wan.language import Figure, FilmColour, Motion, Number, Place, PocketPrompt, Size, Speed
from shared.models.wan.layout import HEIGHT, RADIUS, WIDTH
from training.film.scenes import (
    BOUNCES_A_FRAME,
    PAINT,
    PIXELS_A_FRAME,
    DrawnFilm,
    Picture,
    outline_mask,
)

SPAN = 22  # frames that it looks at
DIFFERENT = 60.0  # of 255: how far a pixel must be from the place's picture, its channels added up
LEAST_AREA = 0.35  # of a small circle's
ANGLES = 24
GRID = 32  # pixels that a thing is compared in
ONE_WAY = 0.8  # of its steps' length must lead one way where a thing is said to move up or down
NEAR = 26.0  # pixels: how far a thing may get from one frame to the next

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Blob:
    """Something that differs from the place, in one frame."""

    x: float
    y: float
    area: float
    mask: Mask
    whole: bool
    """It does not touch the picture's edge."""


def read_film(frames: Picture) -> PocketPrompt:
    """What is seen in the first `SPAN` frames, uint8 [F, HEIGHT, WIDTH, 3]."""
    frames = frames[:SPAN]
    place = _place(frames)
    blobs = [_blobs(frame, place) for frame in frames]
    number = _number(blobs)
    size = _size(blobs)
    motion, speed = _motion(blobs, frames)
    return PocketPrompt(
        number=number, size=size, colour=_colour(frames, blobs), shape=_figure(blobs, motion), motion=motion,
        speed=speed, place=place,
    )  # fmt: skip


@functools.cache
def picture_of(place: Place) -> NDArray[np.float32]:
    """The place without things, a little soft, as all that is compared with it."""
    return _soft(DrawnFilm(PocketPrompt(place=place), 0, empty=True).frame(0))


def _soft(picture: NDArray[Any]) -> NDArray[np.float32]:
    """A decoder's edges are not as sharp as drawn ones."""
    return np.asarray(cv2.GaussianBlur(picture.astype(np.float32), (5, 5), 0))


def _place(frames: Picture) -> Place:
    """The place whose picture is nearest, by the median over time, in which things come and go."""
    seen = _soft(np.median(frames, axis=0))
    return min(Place, key=lambda place: float(np.abs(seen - picture_of(place)).mean()))


def _blobs(frame: Picture, place: Place) -> list[Blob]:
    differs = (np.abs(_soft(frame) - picture_of(place)).sum(-1) > DIFFERENT).astype(np.uint8)
    differs = cv2.morphologyEx(differs, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
    count, labels, stats, centres = cv2.connectedComponentsWithStats(differs, connectivity=8)
    least = LEAST_AREA * np.pi * RADIUS[Size.SMALL] ** 2
    found = []
    for label in range(1, count):
        left, top, width, height, area = stats[label]
        if area >= least:
            whole = left > 0 and top > 0 and left + width < WIDTH and top + height < HEIGHT
            x, y = centres[label]
            found.append(Blob(float(x), float(y), float(area), labels == label, bool(whole)))
    return found


def _number(blobs: list[list[Blob]]) -> Number:
    """The most things that are seen in at least a quarter of the frames: some are hidden behind an edge."""
    counts = Counter(min(3, len(each)) for each in blobs)
    often = [n for n in (3, 2, 1) if sum(counts[m] for m in range(n, 4)) >= len(blobs) / 4]
    return list(Number)[(often or [1])[0] - 1]


def _size(blobs: list[list[Blob]]) -> Size:
    """By the area of whole things; that of a figure is between a third and one and a half of its circle."""
    areas = [blob.area for each in blobs for blob in each if blob.whole] or [0.0]
    radius = float(np.sqrt(np.median(areas) / np.pi)) * 1.08
    return min(Size, key=lambda size: abs(RADIUS[size] - radius))


def _colour(frames: Picture, blobs: list[list[Blob]]) -> FilmColour:
    """The paint that is nearest to most pixels within things, their rims left out."""
    votes: Counter[FilmColour] = Counter()
    paints = np.array([PAINT[colour] for colour in FilmColour], np.float32)
    for frame, each in zip(frames[::3], blobs[::3], strict=True):
        for blob in each:
            inner = cv2.erode(blob.mask.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
            pixels = frame[inner if inner.any() else blob.mask].astype(np.float32)
            nearest = np.linalg.norm(pixels[:, None] - paints, axis=-1).argmin(1)
            for index, count in zip(*np.unique(nearest, return_counts=True), strict=True):
                votes[list(FilmColour)[index]] += int(count)
    return votes.most_common(1)[0][0] if votes else FilmColour.RED


def _figure(blobs: list[list[Blob]], motion: Motion) -> Figure:
    """The outline that overlaps best with whole things, turned in all directions where they spin."""
    scores = dict.fromkeys(Figure, 0.0)
    turns = ANGLES if motion is Motion.SPIN else 1
    for each in blobs[::3]:
        for blob in each:
            if blob.whole:
                seen = _on_grid(blob.mask)
                for figure in Figure:
                    scores[figure] += max(_overlap(seen, mask) for mask in _templates(figure, turns))
    return max(scores, key=lambda figure: scores[figure])


@functools.cache
def _templates(figure: Figure, turns: int) -> tuple[Mask, ...]:
    masks = []
    for mirrored in (False, True) if figure is Figure.FISH else (False,):
        for turn in range(turns):
            mask = outline_mask(figure, 3 * GRID, 2 * np.pi * turn / turns, mirrored=mirrored)
            masks.append(_on_grid(mask))
    return tuple(masks)


def _on_grid(mask: Mask) -> Mask:
    """Centred, and as large as a given area: position and size don't count."""
    rows, columns = np.nonzero(mask)
    scale = 0.42 * GRID / np.sqrt(len(rows))
    matrix = np.array(
        [[scale, 0, GRID / 2 - scale * columns.mean()], [0, scale, GRID / 2 - scale * rows.mean()]],
        np.float32,
    )
    return cv2.warpAffine(mask.astype(np.float32), matrix, (GRID, GRID), flags=cv2.INTER_LINEAR) > 0.5


def _overlap(one: Mask, other: Mask) -> float:
    return float((one & other).sum() / max((one | other).sum(), 1))


def _motion(blobs: list[list[Blob]], frames: Picture) -> tuple[Motion, Speed]:
    """How things get from frame to frame: a steady path, up and down, or none, and then they spin."""
    steps = _steps(blobs, whole=True) or _steps(blobs, whole=False)
    if not steps:
        return Motion.SPIN, Speed.STEADILY
    dx, dy = np.array(steps).T
    sideways, steady, wandering = float(dx.mean()), float(dy.mean()), float(np.abs(dy).mean())
    least = 0.6 * PIXELS_A_FRAME[Speed.SLOWLY]
    if abs(sideways) >= least and abs(sideways) >= abs(steady):
        return (Motion.RIGHT if sideways > 0 else Motion.LEFT), _nearest(PIXELS_A_FRAME, abs(sideways))
    if abs(steady) >= max(least, ONE_WAY * wandering):
        return (Motion.DOWN if steady > 0 else Motion.UP), _nearest(PIXELS_A_FRAME, abs(steady))
    if wandering >= 2 * least:  # up and down
        return Motion.BOUNCE, _bouncing(dy, blobs)
    return Motion.SPIN, _turning(blobs, frames)


def _steps(blobs: list[list[Blob]], *, whole: bool) -> list[tuple[float, float]]:
    """How far things get in a frame, in x and y; with `whole` those alone that no edge hides a part of."""
    steps = []
    for earlier, later in itertools.pairwise(blobs):
        seen = [blob for blob in later if blob.whole or not whole]
        steps += [
            (after.x - before.x, after.y - before.y)
            for before in earlier
            if (before.whole or not whole) and (after := _followed(before, seen)) is not None
        ]
    return steps


def _followed(before: Blob, later: list[Blob]) -> Blob | None:
    """The same thing a frame later."""
    near = [blob for blob in later if abs(blob.x - before.x) < NEAR and abs(blob.y - before.y) < NEAR]
    return min(near, key=lambda blob: np.hypot(blob.x - before.x, blob.y - before.y), default=None)


def _bouncing(dy: NDArray[np.float64], blobs: list[list[Blob]]) -> Speed:
    """By the mean of the steps: a bounce rises and falls its height twice."""
    radius = np.sqrt(np.median([blob.area for each in blobs for blob in each]) / np.pi)
    height = HEIGHT - 2 * (radius + 2) - 10
    return _nearest(BOUNCES_A_FRAME, float(np.abs(dy).mean()) / (2 * height))


def _turning(blobs: list[list[Blob]], frames: Picture) -> Speed:
    """By how much of a thing changes from frame to frame, beside what drawn ones do."""
    changes = []
    for before, after, each in zip(frames, frames[1:], blobs, strict=False):
        for blob in each:
            change = np.abs(after[blob.mask].astype(np.float32) - before[blob.mask]).mean()
            changes.append(float(change) * np.sqrt(blob.area))
    amount = float(np.median(changes)) if changes else 0.0
    return Speed.SLOWLY if amount < 130 else Speed.STEADILY if amount < 260 else Speed.FAST


def _nearest(paces: dict[Speed, float], pace: float) -> Speed:
    """In ratio."""
    return min(paces, key=lambda speed: abs(np.log(paces[speed] / max(pace, 1e-3))))

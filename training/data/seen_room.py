"""What is behind a user: still rooms, and things in them that move and are nobody.

Shape suffixes: T frames, H W picture, C colours.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.seen_person import any_colour, skin_of
from training.data.seen_shapes import SIZE, Joint, Rgb, Shape, box, ellipse, mixed, polygon, shaded

Picture = NDArray[np.uint8]
KINDS = ("flat", "gradient", "furnished", "furnished", "shelves", "window", "texture", "clouds", "curtains")
HELD_OUT_KIND = "bricks"


def room(rng: np.random.Generator, *, held_out: bool) -> Picture:
    """A background [64, 64, 3]. A wall of bricks or tiles is met in held-out pictures only."""
    kind = HELD_OUT_KIND if held_out and rng.uniform() < 0.3 else KINDS[rng.integers(len(KINDS))]
    image = _ROOMS[kind](rng)
    if rng.uniform() < 0.35:  # a camera that is focused on the user
        image = cv2.GaussianBlur(image, (0, 0), rng.uniform(0.6, 3.0))
    return np.ascontiguousarray(image, np.uint8)


def movers(rng: np.random.Generator, num_frames: int) -> list[Shape]:
    """Something that moves and is nobody: a pet, a ball, a swaying curtain, a chair that turns, a fan's blade."""
    time_T = np.arange(num_frames, dtype=np.float32) / 25
    where = rng.uniform((4, 14), (60, 62)).astype(np.float32)
    reach, pace = rng.uniform(0, 18, 2), rng.uniform(0.2, 4, 2)
    path = where + reach * np.sin(pace * time_T[:, None] + rng.uniform(0, 6, 2))
    still, ones = np.zeros(num_frames, np.float32), np.ones(num_frames, np.float32)
    colour = skin_of(rng) if rng.uniform() < 0.3 else any_colour(rng)
    joint = Joint.of(path.astype(np.float32), ones * np.float32(rng.uniform(3, 12)), still)
    match rng.integers(5):
        case 0:
            return _pet(joint, shaded(colour, 0.8))
        case 1:
            return [
                joint.shape(ellipse(0, 0, 1, 1), colour),
                joint.shape(ellipse(-0.3, -0.35, 0.3, 0.25), shaded(colour, 1.3)),
            ]
        case 2:
            sway = np.stack([path[:, 0], 0 * path[:, 1]], axis=1).astype(np.float32)
            hung = Joint.of(sway, ones, 0.004 * (path[:, 0] - where[0]))
            return [
                hung.shape(box(x, -4, x + 5, 70), shaded(colour, gain))
                for x, gain in ((-9, 0.8), (-4, 1), (1, 0.85))
            ]
        case 3:
            low = Joint.of(
                np.stack([path[:, 0], 34 + 0 * path[:, 1]], axis=1).astype(np.float32), 10 * ones, still
            )
            return _chair(low, shaded(any_colour(rng, 0.5), 0.6))
        case _:
            spin = Joint.of(path.astype(np.float32), joint.axes_T22[:, 0, 0], (2 + pace[0]) * time_T)
            return [
                spin.shape(box(-1, -0.2, 1, 0.2), colour),
                spin.shape(box(-0.2, -1, 0.2, 1), shaded(colour, 0.7)),
            ]


def _pet(joint: Joint, fur: Rgb) -> list[Shape]:
    ears = [polygon((0.7 + s * 0.3, -0.6), (0.7 + s * 0.45, -1.15), (0.7 + s * 0.05, -0.75)) for s in (-1, 1)]
    return [
        joint.shape(ellipse(-0.4, 0.2, 1.2, 0.6), fur),
        *(joint.shape(ear, shaded(fur, 0.8)) for ear in ears),
        joint.shape(ellipse(0.7, -0.35, 0.5, 0.45), shaded(fur, 1.1)),
        *(joint.shape(box(x, 0.4, x + 0.2, 1.3), fur) for x in (-1.3, -0.8, 0.1, 0.5)),
    ]


def _chair(joint: Joint, colour: Rgb) -> list[Shape]:
    return [
        joint.shape(box(-0.15, 0, 0.15, 4), shaded(colour, 0.6)),
        joint.shape(
            polygon((-0.9, -1.2), (0.9, -1.2), (1.1, 0.8), (0.9, 1.4), (-0.9, 1.4), (-1.1, 0.8)), colour
        ),
        joint.shape(box(-0.5, -2.1, 0.5, -1.5), shaded(colour, 0.85)),
        joint.shape(box(-1.3, 1.8, 1.3, 2.5), shaded(colour, 0.8)),
    ]


def _wall(rng: np.random.Generator) -> Rgb:
    """Walls are mostly pale, now and then of any colour."""
    return (
        any_colour(rng)
        if rng.uniform() < 0.3
        else mixed(any_colour(rng, 0.35), (205, 200, 190), rng.uniform(0.2, 0.9))
    )


def _blank(colour: Rgb) -> Picture:
    return np.full((SIZE, SIZE, 3), colour, np.uint8)


def _rectangle(image: Picture, left: float, top: float, right: float, bottom: float, colour: Rgb) -> None:
    cv2.rectangle(image, (int(left), int(top)), (int(right), int(bottom)), colour, -1)


def _flat(rng: np.random.Generator) -> Picture:
    return _blank(_wall(rng))


def _gradient(rng: np.random.Generator) -> Picture:
    one, other = np.array(_wall(rng)), np.array(_wall(rng))
    ways = np.linspace(0, 1, SIZE)
    share = np.outer(ways, np.ones(SIZE)) if rng.uniform() < 0.5 else np.add.outer(ways, ways) / 2
    return np.asarray(one + (other - one) * share[..., None], np.uint8)


def _furnished(rng: np.random.Generator) -> Picture:
    image = _flat(rng)
    floor = int(rng.uniform(36, 70))
    _rectangle(image, 0, floor, 64, 64, shaded(any_colour(rng, 0.6), 0.8))
    for _ in range(rng.integers(1, 7)):
        left, top = rng.uniform((-8, -4), (58, 52))
        width, height = rng.uniform(5, 30, 2)
        colour = any_colour(rng, rng.uniform(0.2, 1))
        _rectangle(image, left, top, left + width, top + height, colour)
        if rng.uniform() < 0.5:  # a picture in its frame, a door, a screen
            _rectangle(image, left + 2, top + 2, left + width - 2, top + height - 2, any_colour(rng, 0.6))
    if rng.uniform() < 0.3:  # a lamp or a ball
        x, y = rng.uniform(4, 60, 2)
        cv2.circle(image, (int(x), int(y)), int(rng.uniform(3, 9)), any_colour(rng, 0.5), -1, cv2.LINE_AA)
    if rng.uniform() < 0.25:
        chair = Joint.of(
            np.float32([(rng.uniform(12, 52), rng.uniform(26, 44))]),
            np.float32([rng.uniform(6, 12)]),
            np.zeros(1, np.float32),
        )
        for shape in _chair(chair, shaded(any_colour(rng, 0.5), 0.6)):
            cv2.fillConvexPoly(image, shape.corners_TN2[0], shape.colour, cv2.LINE_AA, 4)
    return image


def _shelves(rng: np.random.Generator) -> Picture:
    image = _blank(shaded(any_colour(rng, 0.5), 0.5))
    row, strength = int(rng.integers(9, 20)), rng.uniform(0.3, 1)
    for top in range(int(rng.integers(-row, 0)), SIZE, row):
        x = 0.0
        while x < SIZE:
            thick = rng.uniform(2, 6)
            if rng.uniform() < 0.88:
                _rectangle(
                    image,
                    x,
                    top + rng.uniform(1, row * 0.4),
                    x + thick - 1,
                    top + row - 3,
                    any_colour(rng, strength),
                )
            x += thick
    return image


def _window(rng: np.random.Generator) -> Picture:
    image = _furnished(rng) if rng.uniform() < 0.5 else shaded_picture(_flat(rng), rng.uniform(0.4, 0.9))
    left, top = rng.uniform((-10, -10), (40, 20))
    right, bottom = left + rng.uniform(15, 45), top + rng.uniform(20, 45)
    sky = mixed((250, 252, 255), any_colour(rng, 0.4), rng.uniform(0, 0.35))
    _rectangle(image, left - 2, top - 2, right + 2, bottom + 2, shaded(_wall(rng), 0.9))
    _rectangle(image, left, top, right, bottom, sky)
    if rng.uniform() < 0.5:  # trees or houses outside
        _rectangle(image, left, bottom - rng.uniform(3, 14), right, bottom, mixed(sky, any_colour(rng), 0.6))
    _rectangle(image, (left + right) / 2, top, (left + right) / 2 + 1, bottom, shaded(_wall(rng), 0.9))
    return image


def shaded_picture(image: Picture, gain: float) -> Picture:
    """The picture, darker."""
    return np.asarray(cv2.convertScaleAbs(image, alpha=gain), np.uint8)


def _texture(rng: np.random.Generator) -> Picture:
    cells = int(rng.integers(8, 48))
    rough = rng.standard_normal((cells, cells, 3), np.float32) * np.float32(rng.uniform(8, 60))
    if rng.uniform() < 0.5:
        rough[:] = rough[..., :1]
    large = cv2.resize(rough, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    return np.clip(large + np.float32(_wall(rng)), 0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator) -> Picture:
    cells = int(rng.integers(2, 7))
    colours = np.array([any_colour(rng, rng.uniform(0.3, 1)) for _ in range(cells * cells)], np.float32)
    return np.clip(
        cv2.resize(colours.reshape(cells, cells, 3), (SIZE, SIZE), interpolation=cv2.INTER_CUBIC), 0, 255
    ).astype(np.uint8)


def _curtains(rng: np.random.Generator) -> Picture:
    fold = rng.uniform(0.5, 1) + 0.3 * np.sin(
        np.arange(SIZE) * rng.uniform(0.15, 1.2) + 2 * np.sin(np.arange(SIZE) / 9)
    )
    image = np.clip(np.multiply.outer(fold, np.array(_wall(rng))), 0, 255)
    return np.broadcast_to(image, (SIZE, SIZE, 3)).astype(np.uint8)


def _bricks(rng: np.random.Generator) -> Picture:
    brick, joint = any_colour(rng, 0.7), _wall(rng)
    image, height, width = _blank(joint), int(rng.integers(4, 10)), int(rng.integers(6, 18))
    for row, top in enumerate(range(0, SIZE, height)):
        for left in range(-(row % 2) * width // 2, SIZE, width):
            _rectangle(
                image, left, top, left + width - 2, top + height - 2, shaded(brick, rng.uniform(0.75, 1.1))
            )
    return image


_ROOMS = {
    "flat": _flat, "gradient": _gradient, "furnished": _furnished, "shelves": _shelves, "window": _window,
    "texture": _texture, "clouds": _clouds, "curtains": _curtains, "bricks": _bricks,
}  # fmt: skip

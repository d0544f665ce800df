"""What is behind a user: still rooms, and things in them that move and are nobody.

Shape suffixes: T frames, H W picture, C colours.
"""

from collections.abc import Callable

import cv2
import numpy as np

from training.data.vision.look import any_colour, skin_of
from training.data.vision.shapes import (
    SIZE,
    Floats,
    Joint,
    Picture,
    Rgb,
    Shape,
    box,
    ellipse,
    floats,
    mixed,
    paint,
    polygon,
    shaded,
)


def room(rng: np.random.Generator, *, held_out: bool) -> Picture:
    """A background [64, 64, 3], of `ROOMS` or of `HELD_OUT_ROOMS`, which held-out pictures alone have."""
    kinds = HELD_OUT_ROOMS if held_out else ROOMS
    draw = kinds[rng.integers(len(kinds))]
    image = draw(rng)
    if rng.uniform() < 0.35:  # a camera that is focused on the user
        cv2.GaussianBlur(image, (0, 0), rng.uniform(0.6, 3.0), image)
    return image


def movers(rng: np.random.Generator, num_frames: int) -> list[Shape]:
    """Something that moves and is nobody: a pet, a ball, a curtain that sways, a chair, a fan."""
    time_T = np.arange(num_frames, dtype=np.float32) / 25
    where, reach = rng.uniform((4, 14), (60, 62)), rng.uniform(0, 18, 2)
    path_T2 = (
        where + reach * np.sin(rng.uniform(0.2, 4, 2) * time_T[:, None] + rng.uniform(0, 6, 2))
    ).astype(np.float32)
    still_T, size_T = 0 * time_T, np.full(num_frames, rng.uniform(3, 12), np.float32)
    colour = skin_of(rng) if rng.uniform() < 0.3 else any_colour(rng)
    match rng.integers(5):
        case 0:
            return _pet(Joint.of(path_T2, size_T, still_T), shaded(colour, 0.8))
        case 1:
            ball = Joint.of(path_T2, size_T, still_T)
            gloss = ball.shape(ellipse(-0.3, -0.35, 0.3, 0.25), shaded(colour, 1.3))
            return [ball.shape(ellipse(0, 0, 1, 1), colour), gloss]
        case 2:
            hung = Joint.of(path_T2 * floats((1, 0)), still_T + 1, 0.004 * (path_T2[:, 0] - where[0]))
            folds = ((-9, 0.8), (-4, 1.0), (1, 0.85))
            return [hung.shape(box(x, -4, x + 5, 70), shaded(colour, gain)) for x, gain in folds]
        case 3:
            low = Joint.of(path_T2 * floats((1, 0.1)) + floats((0, 32)), still_T + 10, still_T)
            return _chair(low, shaded(any_colour(rng, 0.5), 0.6))
        case _:
            fan = Joint.of(path_T2, size_T, rng.uniform(2, 6) * time_T)
            blades = ((box(-1, -0.2, 1, 0.2), 1.0), (box(-0.2, -1, 0.2, 1), 0.7))
            return [fan.shape(outline, shaded(colour, gain)) for outline, gain in blades]


def desk(rng: np.random.Generator, num_frames: int, highest: float) -> list[Shape]:
    """The edge of a desk before the user, not above `highest`, and things on it that are in no hand."""
    top = rng.uniform(highest, 66)
    still_T = np.zeros(num_frames, np.float32)
    place = Joint.of(np.zeros((num_frames, 2)), still_T + 1, still_T)
    shapes = [place.shape(box(-2, top, 66, 70), any_colour(rng, 0.6))]
    for _ in range(rng.integers(0, 3)):
        x, width, height = rng.uniform(0, 60), rng.uniform(4, 14), rng.uniform(3, 12)
        colour = any_colour(rng)
        shapes.append(place.shape(box(x, top - height, x + width, top + 3), colour))
        shapes.append(
            place.shape(box(x + width * 0.7, top - height, x + width, top + 3), shaded(colour, 0.75))
        )
    return shapes


def _pet(joint: Joint, fur: Rgb) -> list[Shape]:
    ears = [polygon((0.7 + s * 0.3, -0.6), (0.7 + s * 0.45, -1.15), (0.7 + s * 0.05, -0.75)) for s in (-1, 1)]
    return [
        joint.shape(ellipse(-0.4, 0.2, 1.2, 0.6), fur),
        *(joint.shape(ear, shaded(fur, 0.8)) for ear in ears),
        joint.shape(ellipse(0.7, -0.35, 0.5, 0.45), shaded(fur, 1.1)),
        *(joint.shape(box(x, 0.4, x + 0.2, 1.3), fur) for x in (-1.3, -0.8, 0.1, 0.5)),
    ]


def _chair(joint: Joint, colour: Rgb) -> list[Shape]:
    back = polygon((-0.9, -1.2), (0.9, -1.2), (1.1, 0.8), (0.9, 1.4), (-0.9, 1.4), (-1.1, 0.8))
    return [
        joint.shape(box(-0.15, 0, 0.15, 4), shaded(colour, 0.6)),
        joint.shape(back, colour),
        joint.shape(box(-0.5, -2.1, 0.5, -1.5), shaded(colour, 0.85)),
        joint.shape(box(-1.3, 1.8, 1.3, 2.5), shaded(colour, 0.8)),
    ]


def _wall(rng: np.random.Generator) -> Rgb:
    """Walls are mostly pale, now and then of any colour."""
    if rng.uniform() < 0.3:
        return any_colour(rng)
    return mixed(any_colour(rng, 0.35), (205, 200, 190), rng.uniform(0.2, 0.9))


def _blank(colour: Rgb) -> Picture:
    return np.full((SIZE, SIZE, 3), colour, np.uint8)


def _rectangle(image: Picture, corner: tuple[float, float], end: tuple[float, float], colour: Rgb) -> None:
    cv2.rectangle(image, (int(corner[0]), int(corner[1])), (int(end[0]), int(end[1])), colour, -1)


def _enlarged(cells_HWC: Floats) -> Floats:
    return np.asarray(cv2.resize(cells_HWC, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC), np.float32)


def _flat(rng: np.random.Generator) -> Picture:
    return _blank(_wall(rng))


def _gradient(rng: np.random.Generator) -> Picture:
    one, other = floats(_wall(rng)), floats(_wall(rng))
    way = np.linspace(0, 1, SIZE)
    share = np.outer(way, np.ones(SIZE)) if rng.uniform() < 0.5 else np.add.outer(way, way) / 2
    return (one + (other - one) * share[..., None]).astype(np.uint8)


def _furnished(rng: np.random.Generator) -> Picture:
    image = _flat(rng)
    _rectangle(image, (0, rng.uniform(36, 70)), (64, 64), shaded(any_colour(rng, 0.6), 0.8))
    for _ in range(rng.integers(1, 7)):
        left, top = rng.uniform((-8, -4), (58, 52))
        right, bottom = left + rng.uniform(5, 30), top + rng.uniform(5, 30)
        _rectangle(image, (left, top), (right, bottom), any_colour(rng, rng.uniform(0.2, 1)))
        if rng.uniform() < 0.5:  # a picture in its frame, a door, a screen
            _rectangle(image, (left + 2, top + 2), (right - 2, bottom - 2), any_colour(rng, 0.6))
    if rng.uniform() < 0.3:  # a lamp or a ball
        x, y = rng.uniform(4, 60, 2)
        cv2.circle(image, (int(x), int(y)), int(rng.uniform(3, 9)), any_colour(rng, 0.5), -1, cv2.LINE_AA)
    if rng.uniform() < 0.25:
        spot = floats([rng.uniform((12, 26), (52, 44)).tolist()])
        chair = Joint.of(spot, floats([rng.uniform(6, 12)]), floats([0]))
        paint(image[None], _chair(chair, shaded(any_colour(rng, 0.5), 0.6)))
    return image


def _shelves(rng: np.random.Generator) -> Picture:
    image = _blank(shaded(any_colour(rng, 0.5), 0.5))
    row, strength = int(rng.integers(9, 20)), rng.uniform(0.3, 1)
    for top in range(int(rng.integers(-row, 0)), SIZE, row):
        x = 0.0
        while x < SIZE:
            thick = rng.uniform(2, 6)
            if rng.uniform() < 0.88:
                start = (x, top + rng.uniform(1, row * 0.4))
                _rectangle(image, start, (x + thick - 1, top + row - 3), any_colour(rng, strength))
            x += thick
    return image


def _window(rng: np.random.Generator) -> Picture:
    image = _furnished(rng)
    image[:] = image * rng.uniform(0.4, 0.9)
    left, top = rng.uniform((-10, -10), (40, 20))
    right, bottom = left + rng.uniform(15, 45), top + rng.uniform(20, 45)
    sky = mixed((250, 252, 255), any_colour(rng, 0.4), rng.uniform(0, 0.35))
    frame = shaded(_wall(rng), 0.9)
    _rectangle(image, (left - 2, top - 2), (right + 2, bottom + 2), frame)
    _rectangle(image, (left, top), (right, bottom), sky)
    if rng.uniform() < 0.5:  # trees or houses outside
        _rectangle(
            image, (left, bottom - rng.uniform(3, 14)), (right, bottom), mixed(sky, any_colour(rng), 0.6)
        )
    _rectangle(image, ((left + right) / 2, top), ((left + right) / 2 + 1, bottom), frame)
    return image


def _texture(rng: np.random.Generator) -> Picture:
    cells = int(rng.integers(8, 48))
    rough = rng.standard_normal((cells, cells, 3), np.float32) * np.float32(rng.uniform(8, 60))
    if rng.uniform() < 0.5:
        rough[:] = rough[..., :1]
    return np.asarray(np.clip(_enlarged(rough) + floats(_wall(rng)), 0, 255), np.uint8)


def _clouds(rng: np.random.Generator) -> Picture:
    cells = int(rng.integers(2, 7))
    colours = floats([any_colour(rng, rng.uniform(0.3, 1)) for _ in range(cells * cells)])
    return np.clip(_enlarged(colours.reshape(cells, cells, 3)), 0, 255).astype(np.uint8)


def _curtains(rng: np.random.Generator) -> Picture:
    x = np.arange(SIZE)
    folds = rng.uniform(0.5, 1) + 0.3 * np.sin(x * rng.uniform(0.15, 1.2) + 2 * np.sin(x / 9))
    row = np.clip(np.multiply.outer(folds, floats(_wall(rng))), 0, 255)
    return np.repeat(row.astype(np.uint8)[None], SIZE, axis=0)


def _bricks(rng: np.random.Generator) -> Picture:
    brick, image = any_colour(rng, 0.7), _blank(_wall(rng))
    height, width = int(rng.integers(4, 10)), int(rng.integers(6, 18))
    for row, top in enumerate(range(0, SIZE, height)):
        for left in range(-(row % 2) * width // 2, SIZE, width):
            tone = shaded(brick, rng.uniform(0.75, 1.1))
            _rectangle(image, (left, top), (left + width - 2, top + height - 2), tone)
    return image


def _wallpaper(rng: np.random.Generator) -> Picture:
    """Stripes one way or the other, with a border of another colour below."""
    image = _blank(_wall(rng))
    stripe, wide = shaded(any_colour(rng, 0.5), rng.uniform(0.6, 1)), int(rng.integers(3, 9))
    across = rng.uniform() < 0.5
    for at in range(int(rng.integers(wide)), SIZE, 2 * wide):
        corner, end = ((0, at), (SIZE, at + wide - 1)) if across else ((at, 0), (at + wide - 1, SIZE))
        _rectangle(image, corner, end, stripe)
    _rectangle(image, (0, rng.uniform(44, 70)), (SIZE, SIZE), any_colour(rng, 0.5))
    return image


ROOMS: tuple[Callable[[np.random.Generator], Picture], ...] = (
    _flat, _gradient, _furnished, _furnished, _furnished, _shelves, _window, _texture, _clouds, _curtains,
)  # fmt: skip
HELD_OUT_ROOMS: tuple[Callable[[np.random.Generator], Picture], ...] = (_bricks, _wallpaper)

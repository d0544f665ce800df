"""What the user's camera sees: drawn people, rooms and held-up things, with what is true of each unit.

`look` says who, `person` draws them, `paths` moves them, `room` is behind them,
`thing` is in their hands, `paints` names its colour, `camera` takes the picture.
Shape suffixes: T frames (25 a second), U units of 4 frames.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Colour
from training.data.vision.camera import light, shoot
from training.data.vision.look import any_colour, skin_of, somebody
from training.data.vision.paths import beside, moves, raised, stroll
from training.data.vision.person import draw_person
from training.data.vision.room import desk, movers, room
from training.data.vision.shapes import SIZE, Floats, Picture, Reals, Rgb, Shape, apart, paint
from training.data.vision.thing import Hand, Thing, draw_thing, empty_hand, thing
from training.errors import TrainingError

FRAMES_PER_UNIT = 4
COLOURS = tuple(colour for colour in Colour if colour)
LAST = slice(FRAMES_PER_UNIT - 1, None, FRAMES_PER_UNIT)  # a unit's last frame, for which it is judged
TRIES = 8
ENOUGH = 60.0  # the largest difference of a part of two colours, of 255, that tells them apart

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, kw_only=True, slots=True)
class VisualScene:
    """What a camera saw, and what is true at each unit's last frame.

    frames [T, 64, 64, 3] RGB. present [U]: the centre of somebody's face is in the picture. place [U, 2]:
    that centre, x right and y down in [-1, 1]; 0 without anybody. colour [U]: `Colour` of the thing held up.
    """

    frames: Picture
    present: NDArray[np.bool_]
    place: Floats
    colour: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """What is to happen.

    Where the face is (pixels; None: nobody), half its height, what is held, how far below its place.
    """

    num_frames: int
    face_T2: Floats | None
    radius: float
    what: Thing | None
    low_T: Floats


def watch(rng: np.random.Generator, units: int, *, held_out: bool = False) -> VisualScene:
    """Draw a scene of so many units: anybody, anywhere, with anything.

    `held_out` adds kinds of rooms, people and things that are never drawn without it.
    """
    num_frames = units * FRAMES_PER_UNIT
    if rng.uniform() < 0.05:
        return _no_camera(rng, num_frames)
    radius = float(rng.uniform(5, 18))
    face = None if rng.uniform() < 0.2 else stroll(rng, num_frames, radius)
    holds = rng.uniform() < (0.4 if face is None else 0.55)
    what = thing(rng, COLOURS[rng.integers(len(COLOURS))], held_out=held_out) if holds else None
    low_T = raised(rng, num_frames)
    plan = _Plan(num_frames=num_frames, face_T2=face, radius=radius, what=what, low_T=low_T)
    return _film(rng, plan, held_out=held_out)


def follow(
    rng: np.random.Generator,
    path_T2: Reals,
    *,
    colour: Colour = Colour.NONE,
    held_out: bool = False,
) -> VisualScene:
    """Somebody whose face moves along the path, in [-1, 1], and who may hold up a thing of that colour.

    Raises:
        TrainingError: the path is not of whole units.
    """
    if path_T2.ndim != 2 or path_T2.shape[1] != 2 or not len(path_T2) or len(path_T2) % FRAMES_PER_UNIT:
        raise TrainingError(f"path of shape {path_T2.shape}: give [T, 2], T a multiple of {FRAMES_PER_UNIT}")
    return _posed(rng, len(path_T2), _to_pixels(path_T2), colour, held_out=held_out)


def still(
    rng: np.random.Generator,
    units: int,
    *,
    place: tuple[float, float] | None,
    colour: Colour = Colour.NONE,
    held_out: bool = False,
) -> VisualScene:
    """Somebody whose face stays at `place` in [-1, 1], or nobody (None); may hold up a thing."""
    num_frames = units * FRAMES_PER_UNIT
    face = None if place is None else _to_pixels(np.tile(np.array(place), (num_frames, 1)))
    return _posed(rng, num_frames, face, colour, held_out=held_out)


def _posed(
    rng: np.random.Generator, num_frames: int, face_T2: Floats | None, colour: Colour, *, held_out: bool
) -> VisualScene:
    what = thing(rng, colour, held_out=held_out) if colour else None
    low_T, radius = np.zeros(num_frames, np.float32), float(rng.uniform(7, 13))
    plan = _Plan(num_frames=num_frames, face_T2=face_T2, radius=radius, what=what, low_T=low_T)
    return _film(rng, plan, held_out=held_out)


def _film(rng: np.random.Generator, plan: _Plan, *, held_out: bool) -> VisualScene:
    behind = _unlike(plan.what, lambda: room(rng, held_out=held_out), _mean)
    frames = np.repeat(behind[None], plan.num_frames, axis=0)
    shapes: list[Shape] = []
    highest = 50.0
    if rng.uniform() < (0.5 if plan.face_T2 is None else 0.12):
        shapes += movers(rng, plan.num_frames)
    skin, sleeve = skin_of(rng), any_colour(rng)
    if plan.face_T2 is not None:
        look = _unlike(plan.what, lambda: somebody(rng, held_out=held_out), lambda look: look.cloth)
        shapes += draw_person(look, moves(rng, plan.face_T2, plan.radius))
        skin, sleeve = look.skin, look.cloth
        highest = max(highest, float(plan.face_T2[:, 1].max()) + plan.radius)
    if rng.uniform() < 0.12 and highest < SIZE:
        shapes += desk(rng, plan.num_frames, highest)
    hand = Hand(skin=skin, sleeve=sleeve, bare=float(rng.uniform(0.6, 3.5)))
    held_U, in_hand = _hold(rng, plan, hand)
    paint(frames, [*shapes, *in_hand])
    shoot(rng, frames, light(rng, plan.what))
    return _judge(frames, plan, held_U)


def _unlike(what: Thing | None, draw: Callable[[], Drawn], colour: Callable[[Drawn], Rgb]) -> Drawn:
    """Draw until the colour is not that of the thing, which would be lost before it."""
    drawn = draw()
    for _ in range(TRIES):
        if what is None or apart(colour(drawn), what.paint) > ENOUGH:
            break
        drawn = draw()
    return drawn


def _mean(image: Picture) -> Rgb:
    red, green, blue, _ = cv2.mean(image)
    return red, green, blue


def _hold(rng: np.random.Generator, plan: _Plan, hand: Hand) -> tuple[NDArray[np.bool_], list[Shape]]:
    """Whether most of the thing is in the picture [U], and its shapes; without one, at times a bare hand."""
    if plan.what is None and rng.uniform() > 0.12:
        return np.zeros(plan.num_frames // FRAMES_PER_UNIT, np.bool_), []
    half = plan.what.half if plan.what else float(np.clip(plan.radius * 0.6, 4, 8))
    centre_T2 = beside(rng, plan.face_T2, plan.radius, half, plan.num_frames)
    centre_T2[:, 1] += plan.low_T
    edge = 0.35 * half
    inside_U = np.all((centre_T2[LAST] > edge) & (centre_T2[LAST] < SIZE - 1 - edge), axis=1)
    if plan.what is None:
        return np.zeros_like(inside_U), empty_hand(rng, centre_T2, half, hand)
    return inside_U, draw_thing(rng, plan.what, centre_T2, hand)


def _judge(frames: Picture, plan: _Plan, held_U: NDArray[np.bool_]) -> VisualScene:
    place_U2, present_U = np.zeros((len(held_U), 2), np.float32), np.zeros(len(held_U), np.bool_)
    if plan.face_T2 is not None:
        place_U2 = (plan.face_T2[LAST] + 0.5) / (SIZE / 2) - 1
        present_U = np.asarray((np.abs(place_U2) <= 1).all(axis=1), np.bool_)
        place_U2 = place_U2 * present_U[:, None]
    colour = int(plan.what.name) if plan.what else 0
    return VisualScene(
        frames=frames,
        present=present_U,
        place=place_U2.astype(np.float32),
        colour=np.where(held_U, colour, 0).astype(np.int64),
    )


def _no_camera(rng: np.random.Generator, num_frames: int) -> VisualScene:
    grey = 0 if rng.uniform() < 0.6 else rng.integers(256)
    units = num_frames // FRAMES_PER_UNIT
    return VisualScene(
        frames=np.full((num_frames, SIZE, SIZE, 3), grey, np.uint8),
        present=np.zeros(units, np.bool_),
        place=np.zeros((units, 2), np.float32),
        colour=np.zeros(units, np.int64),
    )


def _to_pixels(place_T2: Reals) -> Floats:
    return np.asarray((place_T2 + 1) * (SIZE / 2) - 0.5, np.float32)

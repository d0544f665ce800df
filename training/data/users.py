"""What the user's camera sees: drawn people, rooms and held-up things, with what is true of each unit.

Shape suffixes: T frames (25 a second), U units of 4 frames, H W picture, C colours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.replies import Colour
from training.data.seen_camera import light, shoot
from training.data.seen_person import Moves, any_colour, draw_person, skin_of, somebody
from training.data.seen_room import movers, room
from training.data.seen_shapes import SIZE, Floats, Rgb, Shape, paint
from training.data.seen_thing import Thing, draw_thing, empty_hand, thing
from training.errors import TrainingError

FRAMES_PER_UNIT = 4
RATE = 25
COLOURS = tuple(colour for colour in Colour if colour)
HIDDEN = 90.0  # pixels below its place that a hand waits before it is raised


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """What a camera saw, and what is true at each unit's last frame.

    frames [T, 64, 64, 3] RGB; present [U]: the centre of somebody's face is in the picture; place [U, 2]: that
    centre, x right and y down in [-1, 1], 0 without anybody; colour [U]: `Colour` of the thing held up.
    """

    frames: NDArray[np.uint8]
    present: NDArray[np.bool_]
    place: NDArray[np.float32]
    colour: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """What is to happen: where the face is in pixels (None: nobody), its size, the thing, and when it is up."""

    num_frames: int
    face_T2: Floats | None
    radius: float
    colour: Colour
    up_T: Floats


def watch(rng: np.random.Generator, units: int, *, held_out: bool = False) -> Sight:
    """Draw a scene of so many units: anybody, anywhere, with anything.

    `held_out` adds kinds of rooms, people and things that are never drawn without it.
    """
    num_frames = units * FRAMES_PER_UNIT
    if rng.uniform() < 0.05:
        return _no_camera(rng, num_frames)
    radius = float(rng.uniform(5, 18))
    face = None if rng.uniform() < 0.2 else _stroll(rng, num_frames, radius)
    holds = rng.uniform() < (0.55 if face is not None else 0.3)
    colour = COLOURS[rng.integers(len(COLOURS))] if holds else Colour.NONE
    plan = _Plan(
        num_frames=num_frames, face_T2=face, radius=radius, colour=colour, up_T=_raise(rng, num_frames)
    )
    return _film(rng, plan, held_out=held_out)


def follow(
    rng: np.random.Generator,
    path: NDArray[np.floating],
    *,
    colour: Colour = Colour.NONE,
    held_out: bool = False,
) -> Sight:
    """Somebody whose face moves along `path` [T, 2] in [-1, 1]; T is a multiple of 4. May hold a thing up.

    Raises:
        TrainingError: the path is not of whole units.
    """
    if path.ndim != 2 or path.shape[1] != 2 or not len(path) or len(path) % FRAMES_PER_UNIT:
        raise TrainingError(
            f"path has shape {path.shape}: give [T, 2] with T a multiple of {FRAMES_PER_UNIT}"
        )
    face = _to_pixels(path.astype(np.float32))
    ones = np.ones(len(path), np.float32)
    plan = _Plan(
        num_frames=len(path), face_T2=face, radius=float(rng.uniform(7, 13)), colour=colour, up_T=ones
    )
    return _film(rng, plan, held_out=held_out)


def still(
    rng: np.random.Generator,
    units: int,
    *,
    place: tuple[float, float] | None,
    colour: Colour,
    held_out: bool = False,
) -> Sight:
    """Somebody who stays at `place` in [-1, 1] (None: nobody), with a thing of that colour held up or none."""
    num_frames = units * FRAMES_PER_UNIT
    face = None if place is None else np.tile(_to_pixels(np.float32(place)), (num_frames, 1))
    ones = np.ones(num_frames, np.float32)
    plan = _Plan(
        num_frames=num_frames, face_T2=face, radius=float(rng.uniform(7, 13)), colour=colour, up_T=ones
    )
    return _film(rng, plan, held_out=held_out)


def _film(rng: np.random.Generator, plan: _Plan, *, held_out: bool) -> Sight:
    num_frames = plan.num_frames
    what = thing(rng, plan.colour, held_out=held_out) if plan.colour else None
    frames = np.repeat(room(rng, held_out=held_out)[None], num_frames, axis=0)
    shapes: list[Shape] = []
    if rng.uniform() < (0.5 if plan.face_T2 is None else 0.12):
        shapes += movers(rng, num_frames)
    skin, sleeve = skin_of(rng), any_colour(rng)
    if plan.face_T2 is not None:
        look = somebody(rng, held_out=held_out)
        shapes += draw_person(look, _moves(rng, plan.face_T2, plan.radius))
        skin, sleeve = look.skin, look.cloth
    shapes += _hand(rng, plan, what, skin, sleeve)
    paint(frames, shapes)
    shoot(rng, frames, light(rng, what))
    return _judge(frames, plan)


def _judge(frames: NDArray[np.uint8], plan: _Plan) -> Sight:
    last = slice(FRAMES_PER_UNIT - 1, None, FRAMES_PER_UNIT)
    up_U = plan.up_T[last] > 0.75
    face_U2 = (
        np.full((len(up_U), 2), 9, np.float32) if plan.face_T2 is None else _from_pixels(plan.face_T2[last])
    )
    present = (np.abs(face_U2) <= 1).all(axis=1)
    return Sight(
        frames=frames,
        present=present,
        place=np.where(present[:, None], face_U2, 0).astype(np.float32),
        colour=np.where(up_U, int(plan.colour), 0),
    )


def _no_camera(rng: np.random.Generator, num_frames: int) -> Sight:
    grey = 0 if rng.uniform() < 0.6 else rng.integers(256)
    units = num_frames // FRAMES_PER_UNIT
    return Sight(
        frames=np.full((num_frames, SIZE, SIZE, 3), grey, np.uint8),
        present=np.zeros(units, np.bool_),
        place=np.zeros((units, 2), np.float32),
        colour=np.zeros(units, np.int64),
    )


def _to_pixels(place: Floats) -> Floats:
    return np.asarray((place + 1) * (SIZE / 2) - 0.5, np.float32)


def _from_pixels(spot: Floats) -> Floats:
    return np.asarray((spot + 0.5) / (SIZE / 2) - 1, np.float32)


def _ease(start: float, length: float, num_frames: int) -> Floats:
    """0 before `start`, 1 after `start` + `length` (frames), smooth between."""
    share = np.clip((np.arange(num_frames, dtype=np.float32) - start) / length, 0, 1)
    return np.asarray(share * share * (3 - 2 * share), np.float32)


def _stroll(rng: np.random.Generator, num_frames: int, radius: float) -> Floats:
    """A path of the face in pixels: it stays, drifts or steps to other places; some come or go."""
    spot = rng.normal((32, 27), (11, 8)) if rng.uniform() < 0.7 else rng.uniform((2, 6), (62, 56))
    path = np.tile(np.clip(spot, (2, 6), (62, 58)).astype(np.float32), (num_frames, 1))
    time_T = np.arange(num_frames, dtype=np.float32)[:, None] / RATE
    path += rng.uniform(0, 4, 2) * np.sin(rng.uniform(0.3, 4, 2) * time_T + rng.uniform(0, 6, 2))
    if rng.uniform() < 0.5:
        at = 0.0
        while (at := at + rng.exponential(1.5) * RATE) < num_frames:
            goal = rng.normal((32, 28), (13, 8))
            path += _ease(at, rng.uniform(6, 30), num_frames)[:, None] * (
                np.clip(goal, (2, 6), (62, 58)) - path
            )
    if rng.uniform() < 0.2:
        away = np.float32(32 + rng.choice([-1, 1]) * (34 + 3 * radius))
        gone = _ease(rng.uniform(-5, num_frames), rng.uniform(10, 25), num_frames)
        gone = gone if rng.uniform() < 0.5 else 1 - gone
        path[:, 0] += gone * (away - path[:, 0])
    return path.astype(np.float32)


def _raise(rng: np.random.Generator, num_frames: int) -> Floats:
    """How far a hand is up, 0 to 1: all the time, or raised and lowered on the way."""
    up = np.ones(num_frames, np.float32)
    if rng.uniform() < 0.4:
        up *= _ease(rng.uniform(-10, num_frames * 0.6), rng.uniform(6, 16), num_frames)
    if rng.uniform() < 0.3:
        up *= 1 - _ease(rng.uniform(num_frames * 0.4, num_frames), rng.uniform(6, 16), num_frames)
    return up


def _moves(rng: np.random.Generator, face_T2: Floats, radius: float) -> Moves:
    num_frames = len(face_T2)
    time_T = np.arange(num_frames, dtype=np.float32) / RATE
    slow = np.sin(rng.uniform(0.3, 2.5, (3, 1)) * time_T + rng.uniform(0, 6, (3, 1)))
    lean, turn = rng.normal(0, (0.1, 0.35))
    talk = (
        (rng.uniform() < 0.5)
        * np.abs(np.sin(rng.uniform(8, 16) * time_T))
        * (np.sin(rng.uniform(1, 4) * time_T) > -0.3)
    )
    return Moves(
        face_T2=face_T2,
        radius_T=(radius * (1 + rng.uniform(0, 0.08) * slow[0])).astype(np.float32),
        roll_T=(lean + 0.1 * slow[1]).astype(np.float32),
        turn_T=np.clip(turn + 0.4 * slow[2], -1, 1).astype(np.float32),
        mouth_T=talk.astype(np.float32),
        blink_T=((np.arange(num_frames) + rng.integers(90)) % int(rng.integers(40, 120)) < 4).astype(
            np.float32
        ),
    )


def _hand(rng: np.random.Generator, plan: _Plan, what: Thing | None, skin: Rgb, sleeve: Rgb) -> list[Shape]:
    """What is held up, or at times an empty hand."""
    if what is None and rng.uniform() > 0.12:
        return []
    half = what.half if what else float(np.clip(plan.radius * 0.6, 4, 8))
    near = _beside(rng, plan, half)
    low = np.stack([0 * plan.up_T, (1 - plan.up_T) * HIDDEN], axis=1)
    centre = (near + low).astype(np.float32)
    return (
        draw_thing(rng, what, centre, skin, sleeve) if what else empty_hand(rng, centre, half, skin, sleeve)
    )


def _beside(rng: np.random.Generator, plan: _Plan, half: float) -> Floats:
    """Where a thing is held [T, 2]: before the chest or beside the face, else low in the middle; in the picture."""
    wobble = rng.uniform(0, 1.5) * np.sin(
        rng.uniform(0.5, 5) * np.arange(plan.num_frames, dtype=np.float32) / RATE
    )
    if plan.face_T2 is None:
        near = np.tile(rng.uniform((14, 24), (50, 52)), (plan.num_frames, 1))
    else:
        side = float(rng.choice([-1, 1]))
        apart = 0.8 * plan.radius + half
        down = rng.uniform() < 0.6
        away = (side * rng.uniform(0, 0.9) * plan.radius, apart + rng.uniform(0.1, 0.6) * plan.radius)
        near = plan.face_T2 + (away if down else (side * apart * 1.05, rng.uniform(-0.3, 0.8) * plan.radius))
    return np.asarray(np.clip(near, half * 0.8, SIZE - half * 0.8) + wobble[:, None], np.float32)

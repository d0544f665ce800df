"""Films to learn from: what is in one, drawn frame by frame.

Things that move leave on one side and come in on the other, so that a film may last for ever.
"""

import hashlib
import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.models.wan.language import Figure, FilmColour, Motion, Number, Place, PocketPrompt, Size, Speed
from shared.models.wan.layout import HEIGHT, RADIUS, WIDTH, Start, arrange

FPS = 16
PLACE_SEEDS = {  # of how a place always looks
    Place.SKY: 2, Place.FIELD: 2, Place.WALL: 0, Place.NIGHT: 5, Place.DESERT: 5, Place.SUNSET: 5,
    Place.SEA: 3,
}  # fmt: skip
HELD_OUT = 8  # one combination in so many is never trained on

EnumT = TypeVar("EnumT", bound=Enum)
Rgb = tuple[float, float, float]
Picture = NDArray[np.uint8]
Points = NDArray[np.float64]

PIXELS_A_FRAME = {Speed.SLOWLY: 0.7, Speed.STEADILY: 1.6, Speed.FAST: 3.2}
TURNS_A_FRAME = {Speed.SLOWLY: 1 / 80, Speed.STEADILY: 1 / 36, Speed.FAST: 1 / 16}
BOUNCES_A_FRAME = {Speed.SLOWLY: 1 / 32, Speed.STEADILY: 1 / 18, Speed.FAST: 1 / 10}
PAINT: dict[FilmColour, Rgb] = {
    FilmColour.RED: (222, 38, 38), FilmColour.ORANGE: (250, 140, 22), FilmColour.YELLOW: (250, 226, 52),
    FilmColour.GREEN: (40, 168, 62), FilmColour.BLUE: (38, 76, 224), FilmColour.PURPLE: (150, 56, 196),
    FilmColour.WHITE: (248, 248, 248), FilmColour.BLACK: (22, 22, 26),
}  # fmt: skip
_SUBPIXEL_BITS = 4


def held_out(prompt: PocketPrompt) -> bool:
    """Whether this combination of colour, shape, motion and place is kept for the judging."""
    text = f"{prompt.colour} {prompt.shape} {prompt.motion} {prompt.place}"
    return hashlib.blake2b(text.encode(), digest_size=4).digest()[0] % HELD_OUT == 0


def random_prompt(rng: np.random.Generator, *, judged: bool = False) -> PocketPrompt:
    """One that may be trained on, or with `judged` one that never is; some words half as often as others."""
    while True:
        prompt = PocketPrompt(
            number=_any_of(Number, rng),
            size=_any_of(Size, rng),
            colour=_any_of(FilmColour, rng),
            shape=_any_of(Figure, rng, [0.2, 0.2, 0.2, 0.2, 0.1, 0.1]),
            motion=_any_of(Motion, rng),
            speed=_any_of(Speed, rng),
            place=_any_of(Place, rng, [0.16] * 5 + [0.1] * 2),
        )
        if held_out(prompt) == judged:
            return prompt


def _any_of(kind: type[EnumT], rng: np.random.Generator, shares: list[float] | None = None) -> EnumT:
    values = list(kind)
    return values[int(rng.choice(len(values), p=shares))]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a thing is, in pixels, how far it is turned, in radians, and whether it looks to the left."""

    x: float
    y: float
    angle: float
    mirrored: bool


class DrawnFilm:
    """One film: `frame(n)` draws its frame n, the same one every time.

    With `varied` sizes, colours and places are a little different in every film, and clouds, stars and
    bubbles move: what the autoencoder and the checker learn from. The denoiser learns from films in which a
    place always looks the same, so that all that it has to make up is what the prompt is about. `empty`: the
    place alone.
    """

    def __init__(self, prompt: PocketPrompt, seed: int, *, varied: bool = False, empty: bool = False) -> None:
        self.prompt = prompt
        rng = np.random.default_rng(seed)
        self._radius = RADIUS[prompt.size] * (rng.uniform(0.93, 1.07) if varied else 1.0)
        self._paint = _varied(PAINT[prompt.colour], rng) if varied else PAINT[prompt.colour]
        self.starts = [] if empty else arrange(prompt, self._radius, rng)
        usual = np.random.default_rng(PLACE_SEEDS[prompt.place])
        self._background = _Background(prompt.place, rng if varied else usual, moving=varied)

    def frame(self, number: int) -> Picture:
        """RGB, uint8 [HEIGHT, WIDTH, 3]."""
        picture = self._background.frame(number)
        for pose in self.places(number):
            _draw_thing(picture, self.prompt.shape, self._paint, self._radius, pose)
        return picture

    def frames(self, count: int, start: int = 0) -> Picture:
        """Frames from `start` on: uint8 [count, HEIGHT, WIDTH, 3]."""
        return np.stack([self.frame(start + n) for n in range(count)])

    def places(self, number: int) -> list[Placement]:
        """Where things are in frame `number`."""
        return [self._place_of(thing, number) for thing in self.starts]

    def _place_of(self, thing: Start, number: int) -> Placement:
        motion, speed, margin = self.prompt.motion, self.prompt.speed, self._radius + 2
        x, y, angle = thing.x, thing.y, 0.0
        path = number * PIXELS_A_FRAME[speed]
        match motion:
            case Motion.LEFT | Motion.RIGHT:
                x += path if motion is Motion.RIGHT else -path
                x = (x + margin) % (WIDTH + 2 * margin) - margin
            case Motion.UP | Motion.DOWN:
                y += path if motion is Motion.DOWN else -path
                y = (y + margin) % (HEIGHT + 2 * margin) - margin
            case Motion.SPIN:
                angle = 2 * math.pi * (thing.phase + number * TURNS_A_FRAME[speed])
            case Motion.BOUNCE:
                t = (thing.phase + number * BOUNCES_A_FRAME[speed]) % 1
                y -= (HEIGHT - 2 * margin - 10) * 4 * t * (1 - t)
        return Placement(x, y, angle, mirrored=motion is Motion.LEFT)


def _draw_thing(picture: Picture, shape: Figure, paint: Rgb, radius: float, pose: Placement) -> None:
    """A filled outline with a darker rim, and two eyes by which a circle is seen to turn."""
    cos, sin = math.cos(pose.angle), math.sin(pose.angle)
    turn = np.array([[cos, -sin], [sin, cos]])

    def placed(points: Points) -> NDArray[np.int32]:
        moved = (points * [-1 if pose.mirrored else 1, 1]) @ turn.T * radius + np.array([pose.x, pose.y])
        return np.asarray(np.round(moved * (1 << _SUBPIXEL_BITS)), np.int32)

    bright = sum(paint) / 3
    rim = tuple(0.55 * c for c in paint) if bright > 60 else (120, 120, 130)
    eye = (20, 20, 24) if bright > 60 else (240, 240, 240)
    if shape is Figure.BALLOON:
        string = placed(np.array([[0, 0.8], [0.12, 1.15], [-0.1, 1.5]]))
        cv2.polylines(picture, [string], False, (235, 235, 235), 1, cv2.LINE_AA, _SUBPIXEL_BITS)
    parts = [placed(part) for part in OUTLINES[shape]]
    for part in parts:
        cv2.fillPoly(picture, [part], paint, cv2.LINE_AA, _SUBPIXEL_BITS)
        cv2.polylines(picture, [part], True, rim, 1, cv2.LINE_AA, _SUBPIXEL_BITS)
    for point in placed(EYES[shape]):
        size = round(max(1.3, 0.12 * radius) * (1 << _SUBPIXEL_BITS))
        cv2.circle(picture, point.tolist(), size, eye, -1, cv2.LINE_AA, _SUBPIXEL_BITS)


def outline_mask(figure: Figure, side: int, angle: float, *, mirrored: bool) -> NDArray[np.bool_]:
    """A figure alone, as large as fits into a square of `side` pixels."""
    picture = np.zeros((side, side, 3), np.uint8)
    placed = Placement(side / 2, side / 2, angle, mirrored)
    _draw_thing(picture, figure, (255, 255, 255), side / 4, placed)
    return np.asarray(picture.any(-1))


def _ring(radius: float, corners: int, start: float = -0.25) -> Points:
    turns = 2 * np.pi * (start + np.arange(corners) / corners)
    return radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)


def _star() -> Points:
    points = np.empty((10, 2))
    points[::2], points[1::2] = _ring(1.12, 5), _ring(0.5, 5, -0.15)
    return points


OUTLINES: dict[Figure, list[Points]] = {
    Figure.CIRCLE: [_ring(1.0, 40)],
    Figure.SQUARE: [_ring(1.22, 4, -0.125)],
    Figure.TRIANGLE: [_ring(1.2, 3) + np.array([0, 0.15])],
    Figure.STAR: [_star()],
    Figure.BALLOON: [
        np.array([[-0.14, 1.02], [0.14, 1.02], [0, 0.8]]),
        _ring(1.0, 40) * [0.78, 0.95] + np.array([0, -0.12]),
    ],
    Figure.FISH: [
        np.array([[-0.55, 0], [-1.15, -0.5], [-1.0, 0], [-1.15, 0.5]]),
        _ring(1.0, 40) * [0.85, 0.56] + np.array([0.2, 0]),
    ],
}  # fmt: skip
EYES: dict[Figure, Points] = {
    Figure.CIRCLE: np.array([[-0.3, -0.3], [0.3, -0.3]]),
    Figure.SQUARE: np.array([[-0.3, -0.25], [0.3, -0.25]]),
    Figure.TRIANGLE: np.array([[-0.2, 0.1], [0.2, 0.1]]),
    Figure.STAR: np.array([[-0.22, -0.05], [0.22, -0.05]]),
    Figure.BALLOON: np.array([[-0.25, -0.3], [0.25, -0.3]]),
    Figure.FISH: np.array([[0.65, -0.12]]),
}


class _Background:
    """A place that lies still, and what moves in it: clouds, twinkling stars, bubbles."""

    def __init__(self, place: Place, rng: np.random.Generator, *, moving: bool) -> None:
        self._place = place
        self._moving = moving
        self._still = STILL[place](rng)
        self._seeds = rng.uniform(0, 1, (4, 4))

    def frame(self, number: int) -> Picture:
        picture = self._still.copy()
        number = number if self._moving else 0
        match self._place:
            case Place.SKY:
                for x, y, size, _ in self._seeds[:3]:
                    left = (x * 220 + 0.25 * number) % 220 - 30
                    _cloud(picture, left, 10 + 45 * y, 9 + 5 * size)
            case Place.NIGHT:
                for x, y, phase, _ in self._seeds:
                    light = 0.5 + 0.5 * math.sin(2 * math.pi * (phase + number / 40))
                    shade = (90 + 165 * light, 90 + 165 * light, 80 + 140 * light)
                    cv2.circle(picture, (int(8 + 110 * x), int(6 + 60 * y)), 1, shade, -1, cv2.LINE_AA)
            case Place.SEA:
                for x, y, phase, _ in self._seeds[:3]:
                    rise = HEIGHT + 8 - (y * 110 + 0.6 * number) % 112
                    sway = 2 * math.sin(2 * math.pi * (phase + number / 48))
                    centre = _fixed(10 + 140 * x + sway, rise)
                    cv2.circle(picture, centre, 48, (190, 225, 245), 1, cv2.LINE_AA, _SUBPIXEL_BITS)
        return picture


def _fixed(x: float, y: float) -> tuple[int, int]:
    return round(x * (1 << _SUBPIXEL_BITS)), round(y * (1 << _SUBPIXEL_BITS))


def _cloud(picture: Picture, x: float, y: float, size: float) -> None:
    for dx, dy, part in ((-0.9, 0.2, 0.6), (0, 0, 0.85), (0.9, 0.15, 0.65)):
        axes = _fixed(part * size, 0.6 * part * size)
        centre = _fixed(x + dx * size, y + dy * size)
        cv2.ellipse(picture, centre, axes, 0, 0, 360, (236, 244, 252), -1, cv2.LINE_AA, _SUBPIXEL_BITS)


def _gradient(top: Rgb, bottom: Rgb) -> Picture:
    share = np.linspace(0, 1, HEIGHT)[:, None, None]
    rows = np.array(top) * (1 - share) + np.array(bottom) * share
    return np.ascontiguousarray(np.broadcast_to(rows, (HEIGHT, WIDTH, 3)).astype(np.uint8))


def _varied(colour: Rgb, rng: np.random.Generator, by: float = 10) -> Rgb:
    r, g, b = (float(np.clip(part + rng.uniform(-by, by), 0, 255)) for part in colour)
    return r, g, b


def _below(picture: Picture, height: Points, colour: Rgb) -> None:
    """Fill what lies under a line that has a height for every column."""
    edge = np.stack([np.arange(WIDTH), height], axis=1)
    ground = np.concatenate([edge, [[WIDTH, HEIGHT], [0, HEIGHT]]])
    points = np.round(ground * (1 << _SUBPIXEL_BITS)).astype(np.int32)
    cv2.fillPoly(picture, [points], colour, cv2.LINE_AA, _SUBPIXEL_BITS)


def _hills(rng: np.random.Generator, base: float, swing: float) -> Points:
    x = np.arange(WIDTH) / WIDTH
    waves = [np.sin(2 * np.pi * (rng.uniform(0.5, 1.6) * x + rng.uniform())) for _ in range(2)]
    return np.asarray(base + swing * sum(waves) / 2)


def _sky(rng: np.random.Generator) -> Picture:
    return _gradient(_varied((92, 168, 238), rng), _varied((176, 216, 248), rng))


def _field(rng: np.random.Generator) -> Picture:
    picture = _gradient((150, 205, 240), (205, 232, 245))
    _below(picture, _hills(rng, 30, 8), _varied((104, 178, 92), rng))
    _below(picture, _hills(rng, 46, 6), _varied((126, 196, 96), rng))
    for x, y in rng.uniform(0, 1, (7, 2)):
        cv2.circle(picture, (int(WIDTH * x), int(62 + 30 * y)), 1, (246, 236, 190), -1, cv2.LINE_AA)
    return picture


def _wall(rng: np.random.Generator) -> Picture:
    picture = _gradient(_varied((232, 230, 226), rng, 4), _varied((222, 220, 215), rng, 4))
    for row, y in enumerate(range(8, 84, 16)):
        cv2.line(picture, (0, y), (WIDTH, y), (206, 204, 198), 1)
        for x in range(row % 2 * 16, WIDTH, 32):
            cv2.line(picture, (x, y), (x, y + 16), (206, 204, 198), 1)
    cv2.rectangle(picture, (0, 88), (WIDTH, HEIGHT), _varied((150, 116, 86), rng), -1)
    return picture


def _night(rng: np.random.Generator) -> Picture:
    picture = _gradient((8, 8, 20), (26, 24, 52))
    x, y = rng.uniform(20, 140), rng.uniform(14, 34)
    cv2.circle(picture, _fixed(x, y), 144, (238, 234, 208), -1, cv2.LINE_AA, _SUBPIXEL_BITS)
    cv2.circle(picture, _fixed(x + 4, y - 2), 128, (10, 10, 24), -1, cv2.LINE_AA, _SUBPIXEL_BITS)
    _below(picture, _hills(rng, 86, 4), (4, 6, 12))
    return picture


def _desert(rng: np.random.Generator) -> Picture:
    picture = _gradient((250, 214, 140), (252, 232, 178))
    cv2.circle(
        picture, _fixed(rng.uniform(20, 140), 18), 152, (255, 244, 214), -1, cv2.LINE_AA, _SUBPIXEL_BITS
    )
    _below(picture, _hills(rng, 52, 9), _varied((226, 184, 100), rng))
    _below(picture, _hills(rng, 70, 7), _varied((214, 164, 78), rng))
    return picture


def _sunset(rng: np.random.Generator) -> Picture:
    picture = _gradient((96, 58, 118), (250, 146, 70))
    x = rng.uniform(30, 130)
    cv2.circle(picture, _fixed(x, 66), 208, (255, 214, 120), -1, cv2.LINE_AA, _SUBPIXEL_BITS)
    picture[74:] = _gradient((168, 84, 92), (66, 44, 88))[74:]
    for y, half in ((78, 11), (83, 8), (88, 5)):
        cv2.line(picture, (int(x) - half, y), (int(x) + half, y), (246, 176, 104), 1, cv2.LINE_AA)
    return picture


def _sea(rng: np.random.Generator) -> Picture:
    picture = _gradient(_varied((70, 180, 210), rng), _varied((12, 62, 122), rng))
    _below(picture, _hills(rng, 88, 4), _varied((196, 178, 128), rng))
    for x in rng.uniform(6, 154, 4):
        top = rng.uniform(66, 80)
        weed = np.array([[x - 2, 92], [x - 1, top], [x + 1, top], [x + 2, 92]])
        points = np.round(weed * (1 << _SUBPIXEL_BITS)).astype(np.int32)
        cv2.fillPoly(picture, [points], (36, 120, 84), cv2.LINE_AA, _SUBPIXEL_BITS)
    return picture


STILL = {
    Place.SKY: _sky, Place.FIELD: _field, Place.WALL: _wall, Place.NIGHT: _night, Place.DESERT: _desert,
    Place.SUNSET: _sunset, Place.SEA: _sea,
}  # fmt: skip

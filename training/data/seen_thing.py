"""Things that a user holds up, the hand that holds them, and what their colours are called.

A thing counts as held up when fingers touch it and it is in front of everything else: before the chest,
beside the face, or close to the camera. Coloured clothes, furniture and things that move by themselves
have no fingers on them and do not count, nor does an empty hand.
Shape suffixes: T frames.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np

from shared.models.pocket.replies import Colour
from training.data.seen_person import any_colour
from training.data.seen_shapes import Floats, Joint, Rgb, Shape, box, ellipse, limb, mixed, polygon, shaded

KINDS = ("card", "ball", "cup", "book", "box", "cloth")
HELD_OUT_KIND = "bottle"

#  hue in degrees, saturation, value: (from, to) each. What lies between two names is left out.
PAINTS: dict[Colour, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    Colour.RED: ((-10, 8), (0.7, 1.0), (0.5, 0.95)),
    Colour.ORANGE: ((21, 33), (0.78, 1.0), (0.82, 1.0)),
    Colour.YELLOW: ((49, 61), (0.65, 1.0), (0.8, 1.0)),
    Colour.GREEN: ((92, 155), (0.5, 1.0), (0.35, 0.9)),
    Colour.BLUE: ((203, 236), (0.6, 1.0), (0.45, 1.0)),
    Colour.PURPLE: ((270, 298), (0.45, 0.9), (0.4, 0.9)),
    Colour.WHITE: ((0, 360), (0.0, 0.06), (0.9, 1.0)),
    Colour.BLACK: ((0, 360), (0.0, 0.3), (0.03, 0.13)),
}
# The same in the picture, after light and camera: a little wider, and bright enough to be named.
SEEN: dict[Colour, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    Colour.RED: ((-16, 12), (0.6, 1.0), (0.3, 1.0)),
    Colour.ORANGE: ((17, 37), (0.65, 1.0), (0.5, 1.0)),
    Colour.YELLOW: ((45, 66), (0.5, 1.0), (0.5, 1.0)),
    Colour.GREEN: ((82, 165), (0.35, 1.0), (0.22, 1.0)),
    Colour.BLUE: ((196, 242), (0.45, 1.0), (0.28, 1.0)),
    Colour.PURPLE: ((262, 308), (0.35, 1.0), (0.28, 1.0)),
    Colour.WHITE: ((0, 360), (0.0, 0.24), (0.6, 1.0)),
    Colour.BLACK: ((0, 360), (0.0, 1.0), (0.0, 0.19)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Thing:
    """What is held: its kind, name of colour, paint, and half its size in pixels."""

    kind: str
    name: Colour
    paint: Rgb
    half: float


def thing(rng: np.random.Generator, name: Colour, *, held_out: bool) -> Thing:
    """Draw a thing of that colour. Bottles are met in held-out pictures only."""
    hues, strengths, values = PAINTS[name]
    paint = colorsys.hsv_to_rgb((rng.uniform(*hues) / 360) % 1, rng.uniform(*strengths), rng.uniform(*values))
    kind = HELD_OUT_KIND if held_out and rng.uniform() < 0.25 else KINDS[rng.integers(len(KINDS))]
    return Thing(
        kind=kind,
        name=name,
        paint=(paint[0] * 255, paint[1] * 255, paint[2] * 255),
        half=float(rng.uniform(4, 12)),
    )


def nameable(name: Colour, seen: Rgb) -> bool:
    """Whether a person would call the colour by that name."""
    hue, strength, value = colorsys.rgb_to_hsv(*(min(1.0, max(0.0, part / 255)) for part in seen))
    hues, strengths, values = SEEN[name]
    turned = (hue * 360 - hues[0]) % 360 <= hues[1] - hues[0]
    return turned and strengths[0] <= strength <= strengths[1] and values[0] <= value <= values[1]


def draw_thing(
    rng: np.random.Generator, what: Thing, centre_T2: Floats, skin: Rgb, sleeve: Rgb
) -> list[Shape]:
    """The thing and the hand that holds it, the hindmost first; its centre in pixels."""
    num_frames = len(centre_T2)
    time_T = np.arange(num_frames, dtype=np.float32) / 25
    tilt_T = rng.normal(0, 0.15) + rng.uniform(0, 0.12) * np.sin(rng.uniform(1, 6) * time_T)
    scale_T = np.full(num_frames, what.half, np.float32)
    body = Joint.of(centre_T2, scale_T, tilt_T.astype(np.float32), rng.uniform(0.75, 1.0))
    arm = Joint.of(centre_T2, scale_T, 0 * tilt_T.astype(np.float32))
    tall = {"book": 1.15, "card": rng.uniform(0.65, 1.25), "bottle": 1.3}.get(what.kind, 1.0)
    grip = rng.integers(3)  # from below, from the side, or both hands at the sides
    girth = max(0.42, 2.6 / what.half)
    side = float(rng.choice([-1, 1]))
    hands = (
        ((0.1 * side, tall * 0.85),)
        if grip == 0
        else ((side * 0.85, 0.25),)
        if grip == 1
        else ((-0.88, 0.2), (0.88, 0.2))
    )
    behind, front = [], []
    for x, y in hands:
        lean = (np.sign(x) if grip else side) * rng.uniform(0.3, 1.6)
        behind += _arm(arm, x, y, lean, girth, skin, sleeve, sleeve_from=rng.uniform(0.6, 3.5))
        front += _fingers(body, x, y, girth, skin, across=grip == 0)
    return [*behind, *_body(rng, what, body, tall), *front]


def empty_hand(
    rng: np.random.Generator, centre_T2: Floats, half: float, skin: Rgb, sleeve: Rgb
) -> list[Shape]:
    """A waving hand with nothing in it."""
    time_T = np.arange(len(centre_T2), dtype=np.float32) / 25
    wave_T = (rng.uniform(0, 0.35) * np.sin(rng.uniform(3, 12) * time_T)).astype(np.float32)
    hand = Joint.of(centre_T2, np.full(len(centre_T2), half, np.float32), wave_T)
    fingers = [limb((x * 0.45, -0.2), (x, -1.15 + 0.25 * abs(x)), 0.3, 0.24) for x in (-0.6, -0.2, 0.2, 0.6)]
    thumb = limb((0.2, 0.2), (0.95, -0.25), 0.36, 0.26)
    return [
        *_arm(hand, 0, 0.4, rng.uniform(-0.6, 0.6), 0.5, skin, sleeve, sleeve_from=rng.uniform(0.6, 3)),
        *(hand.shape(outline, shaded(skin, gain)) for outline, gain in zip((*fingers, thumb), (0.94, 1, 0.94, 1, 0.9), strict=True)),
        hand.shape(ellipse(0, 0.1, 0.52, 0.55), shaded(skin, 0.97)),
    ]  # fmt: skip


def _arm(
    arm: Joint, x: float, y: float, lean: float, girth: float, skin: Rgb, sleeve: Rgb, *, sleeve_from: float
) -> list[Shape]:
    far = 14.0
    reach = min(1.0, sleeve_from / far)
    wrist, elbow = (x, y + girth * 0.4), (x + lean * 3, y + far)
    cuff = (wrist[0] + reach * (elbow[0] - wrist[0]), wrist[1] + reach * (elbow[1] - wrist[1]))
    return [
        arm.shape(limb(wrist, elbow, girth * 1.5, girth * 2.2), shaded(skin, 0.88)),
        arm.shape(limb(cuff, elbow, girth * 2.0, girth * 2.8), shaded(sleeve, 0.9)),
        arm.shape(ellipse(x, y + girth * 0.25, girth * 1.05, girth * 1.05), shaded(skin, 0.92)),
    ]


def _fingers(body: Joint, x: float, y: float, girth: float, skin: Rgb, *, across: bool) -> list[Shape]:
    shapes = []
    for index in range(3):
        step = (index - 1) * girth * 0.62
        spot = (x + step, y - girth * 0.1) if across else (x * 0.92, y + step)
        rx, ry = (girth * 0.3, girth * 0.62) if across else (girth * 0.62, girth * 0.3)
        shapes.append(body.shape(ellipse(*spot, rx, ry), shaded(skin, (1.0, 0.9, 1.0)[index])))
    return shapes


def _body(rng: np.random.Generator, what: Thing, body: Joint, tall: float) -> list[Shape]:
    paint, dark, light = what.paint, shaded(what.paint, 0.72), mixed(what.paint, (255, 255, 255), 0.3)
    if what.name is Colour.BLACK:
        light = mixed(paint, (255, 255, 255), 0.12)
    if what.name is Colour.WHITE:
        dark = shaded(paint, 0.82)
    match what.kind:
        case "ball":
            shapes = [
                body.shape(ellipse(0, 0, 1, 1), dark),
                body.shape(ellipse(-0.08, -0.1, 0.88, 0.86), paint),
                body.shape(ellipse(-0.35, -0.4, 0.22, 0.16), light),
            ]
        case "cup":
            shapes = [
                body.shape(ellipse(0.85, 0, 0.4, 0.5), dark), body.shape(ellipse(0.85, 0, 0.2, 0.28), shaded(paint, 0.4)),
                body.shape(polygon((-0.8, -0.9), (0.8, -0.9), (0.62, 1), (-0.62, 1)), paint),
                body.shape(polygon((0.4, -0.9), (0.8, -0.9), (0.62, 1), (0.3, 1)), dark), body.shape(ellipse(0, -0.9, 0.8, 0.2), light),
            ]  # fmt: skip
        case "book":
            shapes = [
                body.shape(box(-0.82, -tall, 0.9, tall), (232, 226, 208)),
                body.shape(box(-0.9, -tall, 0.8, tall), paint),
                body.shape(box(-0.9, -tall, -0.7, tall), dark),
            ]
        case "box":
            shapes = [
                body.shape(polygon((-0.8, -0.6), (-0.4, -1), (1, -1), (0.7, -0.6)), light),
                body.shape(polygon((0.7, -0.6), (1, -1), (1, 0.6), (0.7, 0.95)), dark), body.shape(box(-0.8, -0.6, 0.7, 0.95), paint),
            ]  # fmt: skip
        case "cloth":
            shapes = [
                body.shape(
                    polygon(
                        (-0.5, -1),
                        (0.4, -0.95),
                        (0.95, 0.2),
                        (0.8, 1.1),
                        (0.1, 1.3),
                        (-0.7, 1.05),
                        (-0.95, 0.1),
                    ),
                    paint,
                )
            ]
            shapes += [
                body.shape(polygon((x, -0.7), (x + 0.14, -0.7), (x * 1.7 + 0.2, 1.05), (x * 1.7, 1.05)), dark)
                for x in (-0.35, 0.05, 0.3)
            ]
        case "bottle":
            shapes = [
                body.shape(box(-0.22, -tall, 0.22, -0.5), dark), body.shape(box(-0.28, -tall - 0.1, 0.28, -tall + 0.15), light),
                body.shape(polygon((-0.25, -0.75), (0.25, -0.75), (0.55, -0.35), (0.55, tall), (-0.55, tall), (-0.55, -0.35)), paint),
                body.shape(box(-0.42, -0.3, -0.28, tall * 0.9), light),
            ]  # fmt: skip
        case _:
            shapes = [
                body.shape(box(-0.95, -tall, 0.95, tall), paint),
                body.shape(polygon((0.95, -tall), (0.95, tall), (0.1, tall)), shaded(paint, 0.93)),
            ]
    if what.kind in {"card", "book", "box", "cup", "bottle"} and rng.uniform() < 0.4:  # a label, never large
        x, y = rng.uniform(-0.25, 0.1), rng.uniform(-0.45, 0.1)
        shapes.append(
            body.shape(box(x - 0.25, y - 0.15, x + 0.3, y + 0.15), mixed(any_colour(rng, 0.3), paint, 0.3))
        )
    return shapes

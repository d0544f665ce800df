"""Things that a user holds up, and the hand that holds them.

A thing counts as held up when a hand touches it and it is in front of everything else: before the chest,
beside the face, or low in the middle when nobody is seen. Coloured clothes, furniture, what stands on a desk
and what moves by itself have no hand on them and do not count, nor does an empty hand.
Shape suffixes: T frames.
"""

import colorsys
from dataclasses import dataclass

import numpy as np

from shared.models.pocket.dialogue.replies import Colour
from training.data.vision.look import any_colour
from training.data.vision.paints import PAINTS
from training.data.vision.shapes import Floats, Joint, Rgb, Shape, box, ellipse, limb, mixed, polygon, shaded

KINDS = ("card", "ball", "cup", "book", "box", "cloth")
HELD_OUT_KINDS = ("bottle", "flag")
LABELLED = {"card", "book", "box", "cup", "bottle"}
ELBOW = 14.0  # how far below the hand an arm leaves, in halves of the thing


@dataclass(frozen=True, kw_only=True, slots=True)
class Thing:
    """What is held: its kind, name of colour, paint, half its size in pixels, how tall and wide for that."""

    kind: str
    name: Colour
    paint: Rgb
    half: float
    tall: float
    wide: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hand:
    """Whose hand: skin, sleeve, and how far up the sleeve begins, in halves of the thing."""

    skin: Rgb
    sleeve: Rgb
    bare: float


def thing(rng: np.random.Generator, name: Colour, *, held_out: bool) -> Thing:
    """Draw a thing of that colour, of one of `KINDS` or, in held-out pictures, of `HELD_OUT_KINDS`."""
    hues, strengths, values = PAINTS[name]
    red, green, blue = colorsys.hsv_to_rgb(
        (rng.uniform(*hues) / 360) % 1, rng.uniform(*strengths), rng.uniform(*values)
    )
    kinds = HELD_OUT_KINDS if held_out else KINDS
    kind = kinds[rng.integers(len(kinds))]
    tall = {"book": 1.15, "card": float(rng.uniform(0.65, 1.25)), "bottle": 1.3}.get(kind, 1.0)
    wide = {"cup": 0.75, "bottle": 0.65}.get(kind, 0.92)
    paint = (red * 255, green * 255, blue * 255)
    return Thing(kind=kind, name=name, paint=paint, half=float(rng.uniform(4.5, 12)), tall=tall, wide=wide)


def draw_thing(rng: np.random.Generator, what: Thing, centre_T2: Floats, hand: Hand) -> list[Shape]:
    """The thing, its centre in pixels, and the hand or hands that hold it; the hindmost shape first."""
    time_T = np.arange(len(centre_T2), dtype=np.float32) / 25
    tilt_T = rng.normal(0, 0.15) + rng.uniform(0, 0.12) * np.sin(rng.uniform(1, 6) * time_T)
    half_T = np.full(len(centre_T2), what.half, np.float32)
    body = Joint.of(centre_T2, half_T, tilt_T, rng.uniform(0.75, 1.0))
    arm = Joint.of(centre_T2, half_T, 0 * time_T)
    girth = max(0.4, 2.2 / what.half)
    side = float(rng.choice([-1, 1]))
    below = rng.uniform() < 0.4
    grips = [(0.1 * side, what.tall * 0.9)] if below else [(side * what.wide, 0.25)]
    if not below and what.half > 7 and rng.uniform() < 0.4:  # with both hands
        grips.append((-side * what.wide, 0.25))
    behind, front = [], []
    for x, y in grips:
        behind += _arm(arm, (x, y), np.sign(x) * rng.uniform(0.3, 1.6), girth, hand)
        front += _fingers(body, (x, y), girth, hand.skin, across=below)
    if rng.uniform() < 0.15:  # held from behind
        front = []
    return [*behind, *_THINGS[what.kind](body, what), *_label(rng, body, what), *front]


def empty_hand(rng: np.random.Generator, centre_T2: Floats, half: float, hand: Hand) -> list[Shape]:
    """A waving hand with nothing in it, its centre in pixels."""
    time_T = np.arange(len(centre_T2), dtype=np.float32) / 25
    wave_T = rng.uniform(0, 0.35) * np.sin(rng.uniform(3, 12) * time_T)
    joint = Joint.of(centre_T2, np.full(len(centre_T2), half, np.float32), wave_T)
    fingers = [limb((x * 0.45, -0.2), (x, -1.15 + 0.25 * abs(x)), 0.3, 0.24) for x in (-0.6, -0.2, 0.2, 0.6)]
    thumb = limb((0.2, 0.2), (0.95, -0.25), 0.36, 0.26)
    outlines = zip((*fingers, thumb, ellipse(0, 0.1, 0.52, 0.55)), (0.94, 1, 0.94, 1, 0.9, 0.97), strict=True)
    arm = _arm(joint, (0, 0.4), rng.uniform(-0.6, 0.6), 0.5, hand)
    return [*arm, *(joint.shape(outline, shaded(hand.skin, gain)) for outline, gain in outlines)]


def _arm(joint: Joint, grip: tuple[float, float], lean: float, girth: float, hand: Hand) -> list[Shape]:
    share = min(1.0, hand.bare / ELBOW)
    wrist, elbow = (grip[0], grip[1] + girth * 0.4), (grip[0] + lean * 3, grip[1] + ELBOW)
    cuff = (wrist[0] + share * (elbow[0] - wrist[0]), wrist[1] + share * (elbow[1] - wrist[1]))
    palm = ellipse(grip[0], grip[1] + girth * 0.25, girth * 1.05, girth * 1.05)
    return [
        joint.shape(limb(wrist, elbow, girth * 1.5, girth * 2.2), shaded(hand.skin, 0.88)),
        joint.shape(limb(cuff, elbow, girth * 2.0, girth * 2.8), shaded(hand.sleeve, 0.9)),
        joint.shape(palm, shaded(hand.skin, 0.92)),
    ]


def _fingers(
    joint: Joint, grip: tuple[float, float], girth: float, skin: Rgb, *, across: bool
) -> list[Shape]:
    (x, y), short, long = grip, girth * 0.3, girth * 0.62
    outlines = [
        ellipse(x + step, y - 0.1 * girth, short, long)
        if across
        else ellipse(x * 0.92, y + step, long, short)
        for step in (-long, 0, long)
    ]
    return [
        joint.shape(outline, shaded(skin, gain)) for outline, gain in zip(outlines, (1, 0.9, 1), strict=True)
    ]


def _label(rng: np.random.Generator, joint: Joint, what: Thing) -> list[Shape]:
    """Something printed on it, never large."""
    if what.kind not in LABELLED or rng.uniform() > 0.4:
        return []
    x, y = rng.uniform((-0.5, -0.6), (-0.15, -0.05))
    return [joint.shape(box(x, y, x + 0.55, y + 0.3), mixed(any_colour(rng, 0.3), what.paint, 0.3))]


def _dark(what: Thing) -> Rgb:
    return shaded(what.paint, 0.82 if what.name is Colour.WHITE else 0.72)


def _light(what: Thing) -> Rgb:
    return mixed(what.paint, (255, 255, 255), 0.12 if what.name is Colour.BLACK else 0.3)


def _card(joint: Joint, what: Thing) -> list[Shape]:
    glare = polygon((0.95, -what.tall), (0.95, what.tall), (0.1, what.tall))
    front = box(-0.95, -what.tall, 0.95, what.tall)
    return [joint.shape(front, what.paint), joint.shape(glare, shaded(what.paint, 0.93))]


def _ball(joint: Joint, what: Thing) -> list[Shape]:
    return [
        joint.shape(ellipse(0, 0, 1, 1), _dark(what)),
        joint.shape(ellipse(-0.08, -0.1, 0.88, 0.86), what.paint),
        joint.shape(ellipse(-0.35, -0.4, 0.22, 0.16), _light(what)),
    ]


def _cup(joint: Joint, what: Thing) -> list[Shape]:
    return [
        joint.shape(ellipse(0.85, 0, 0.4, 0.5), _dark(what)),
        joint.shape(ellipse(0.85, 0, 0.2, 0.28), shaded(what.paint, 0.4)),
        joint.shape(polygon((-0.8, -0.9), (0.8, -0.9), (0.62, 1), (-0.62, 1)), what.paint),
        joint.shape(polygon((0.4, -0.9), (0.8, -0.9), (0.62, 1), (0.3, 1)), _dark(what)),
        joint.shape(ellipse(0, -0.9, 0.8, 0.2), _light(what)),
    ]


def _book(joint: Joint, what: Thing) -> list[Shape]:
    return [
        joint.shape(box(-0.82, -what.tall, 0.9, what.tall), (232, 226, 208)),
        joint.shape(box(-0.9, -what.tall, 0.8, what.tall), what.paint),
        joint.shape(box(-0.9, -what.tall, -0.7, what.tall), _dark(what)),
    ]


def _box(joint: Joint, what: Thing) -> list[Shape]:
    return [
        joint.shape(polygon((-0.8, -0.6), (-0.4, -1), (1, -1), (0.7, -0.6)), _light(what)),
        joint.shape(polygon((0.7, -0.6), (1, -1), (1, 0.6), (0.7, 0.95)), _dark(what)),
        joint.shape(box(-0.8, -0.6, 0.7, 0.95), what.paint),
    ]


def _cloth(joint: Joint, what: Thing) -> list[Shape]:
    hung = polygon((-0.5, -1), (0.4, -0.95), (0.95, 0.2), (0.8, 1.1), (0.1, 1.3), (-0.7, 1.05), (-0.95, 0.1))
    folds = [
        polygon((x, -0.7), (x + 0.14, -0.7), (x * 1.7 + 0.2, 1.05), (x * 1.7, 1.05)) for x in (-0.35, 0.3)
    ]
    return [joint.shape(hung, what.paint), *(joint.shape(fold, _dark(what)) for fold in folds)]


def _bottle(joint: Joint, what: Thing) -> list[Shape]:
    tall = what.tall
    belly = polygon((-0.25, -0.75), (0.25, -0.75), (0.65, -0.35), (0.65, tall), (-0.65, tall), (-0.65, -0.35))
    return [
        joint.shape(box(-0.22, -tall, 0.22, -0.5), _dark(what)),
        joint.shape(box(-0.28, -tall - 0.1, 0.28, -tall + 0.15), _light(what)),
        joint.shape(belly, what.paint),
        joint.shape(box(-0.42, -0.3, -0.32, tall * 0.7), _light(what)),
    ]


def _flag(joint: Joint, what: Thing) -> list[Shape]:
    """A pennant on its stick."""
    return [
        joint.shape(box(-0.75, -1.1, -0.6, 1.3), (150, 120, 80)),
        joint.shape(polygon((-0.6, -1.1), (1, -0.35), (-0.6, 0.45)), what.paint),
        joint.shape(polygon((-0.6, 0.1), (0.5, -0.12), (-0.6, 0.45)), _dark(what)),
    ]


_THINGS = {
    "card": _card, "ball": _ball, "cup": _cup, "book": _book, "box": _box, "cloth": _cloth, "bottle": _bottle,
    "flag": _flag,
}  # fmt: skip

"""A drawn user: who it is, and the shapes of head and body as they move.

The head's own coordinates: the face's centre is 0, its chin 1, its brow -1; the body hangs below it.
Shape suffixes: T frames.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np

from training.data.seen_shapes import (
    Floats,
    Joint,
    Rgb,
    Shape,
    box,
    ellipse,
    mixed,
    polygon,
    shaded,
)

SKINS: tuple[Rgb, ...] = (
    (255, 226, 205), (246, 208, 178), (234, 188, 152), (222, 170, 130), (200, 146, 106),
    (172, 120, 84), (140, 94, 64), (110, 72, 48), (82, 54, 38), (58, 38, 28),
)  # fmt: skip
HAIRS: tuple[Rgb, ...] = (
    (22, 18, 18), (44, 30, 24), (74, 48, 32), (112, 74, 44), (158, 112, 62), (206, 168, 104),
    (232, 208, 160), (150, 66, 34), (128, 128, 130), (208, 208, 208), (196, 60, 120), (60, 90, 170),
)  # fmt: skip
STYLES = ("bald", "buzz", "short", "side", "long", "bob", "afro", "bun")
HELD_OUT_STYLE = "crest"
CLOTHES = ("plain", "plain", "hood", "collar", "rows", "columns", "dots", "tie", "neckline")
HATS = ("beanie", "cap", "headphones")
DARK: Rgb = (24, 20, 22)


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Who somebody is."""

    skin: Rgb
    hair: Rgb
    style: str
    beard: float
    glasses: str
    hat: str
    hat_colour: Rgb
    clothes: str
    cloth: Rgb
    second: Rgb
    width: float
    shoulders: float
    aspect: float
    light_side: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """How somebody moves: face centre in pixels, half the face's height in pixels, angles, mouth and lids."""

    face_T2: Floats
    radius_T: Floats
    roll_T: Floats
    turn_T: Floats
    mouth_T: Floats
    blink_T: Floats


def any_colour(rng: np.random.Generator, saturation: float = 1.0) -> Rgb:
    """A colour of any kind, at most so saturated."""
    hue, strength, value = rng.uniform(), rng.uniform() ** 0.7 * saturation, 0.08 + 0.9 * rng.uniform()
    red, green, blue = colorsys.hsv_to_rgb(hue, strength, value)
    return red * 255, green * 255, blue * 255


def skin_of(rng: np.random.Generator) -> Rgb:
    """Any skin from very light to very dark."""
    at = rng.uniform(0, len(SKINS) - 1)
    return mixed(SKINS[int(at)], SKINS[int(at) + 1], at % 1)


def somebody(rng: np.random.Generator, *, held_out: bool) -> Look:
    """Draw a person. A crest of hair, and glasses with a beard, are met in held-out pictures only."""
    style = STYLES[rng.integers(len(STYLES))]
    beard = float(rng.uniform(0.5, 1)) if rng.uniform() < 0.25 else 0.0
    glasses = str(rng.choice(["thin", "thick", "sun"], p=[0.45, 0.4, 0.15])) if rng.uniform() < 0.3 else ""
    if held_out and rng.uniform() < 0.3:
        style = HELD_OUT_STYLE
    if held_out and rng.uniform() < 0.4:
        beard, glasses = 0.9, glasses or "thick"
    elif beard and glasses:
        beard = 0.0
    hat = (
        HATS[rng.integers(len(HATS))] if rng.uniform() < 0.2 and style not in {"crest", "bun", "afro"} else ""
    )
    return Look(
        skin=skin_of(rng), hair=shaded(HAIRS[rng.integers(len(HAIRS))], rng.uniform(0.85, 1.15)), style=style,
        beard=beard, glasses=glasses, hat=hat, hat_colour=any_colour(rng), clothes=CLOTHES[rng.integers(len(CLOTHES))],
        cloth=any_colour(rng), second=any_colour(rng), width=float(rng.uniform(0.7, 0.86)),
        shoulders=float(rng.uniform(1.6, 2.4)), aspect=float(rng.uniform(0.75, 1.05)),
        light_side=float(rng.choice([-1, 1]) * rng.uniform(0, 0.3)),
    )  # fmt: skip


def draw_person(look: Look, moves: Moves) -> list[Shape]:
    """All shapes of a person, the hindmost first."""
    head = Joint.of(moves.face_T2, moves.radius_T, moves.roll_T, look.aspect)
    # The trunk stays upright and follows the head's leaning only in part.
    lean = np.stack([-0.9 * np.sin(moves.roll_T) * moves.radius_T * look.aspect, 0 * moves.roll_T], axis=1)
    trunk = Joint.of(moves.face_T2 + lean, moves.radius_T, 0.15 * moves.roll_T, look.aspect)
    turn = np.stack([0.34 * moves.turn_T, 0 * moves.turn_T], axis=1).astype(np.float32)
    return [
        *_behind(look, head), *_body(look, trunk), *_skull(look, head, turn), *_features(look, head, turn, moves),
        *_hair(look, head, turn), *_hat(look, head),
    ]  # fmt: skip


def _behind(look: Look, head: Joint) -> list[Shape]:
    wide = look.width
    match look.style:
        case "long":
            outline = ellipse(0, 0.45, wide * 1.32, 1.75)
        case "bob":
            outline = ellipse(0, 0.0, wide * 1.36, 1.3)
        case "afro":
            outline = ellipse(0, -0.45, wide * 1.75, 1.3)
        case "bun":
            outline = ellipse(0, -1.3, wide * 0.5, 0.42)
        case "crest":
            outline = polygon((-0.22, -0.4), (-0.2, -1.6), (0, -1.75), (0.2, -1.6), (0.22, -0.4))
        case _:
            return []
    return [head.shape(outline, shaded(look.hair, 0.85))]


def _body(look: Look, trunk: Joint) -> list[Shape]:
    wide, cloth, second = look.shoulders, look.cloth, look.second
    outline = polygon(
        (-0.4, 1.25), (0.4, 1.25), (wide * 0.75, 1.5), (wide * 0.95, 1.8), (wide * 1.08, 2.6), (wide * 1.15, 12),
        (-wide * 1.15, 12), (-wide * 1.08, 2.6), (-wide * 0.95, 1.8), (-wide * 0.75, 1.5),
    )  # fmt: skip
    shapes = [trunk.shape(outline, cloth)]
    for edge in (-1, 1):  # arms
        arm = polygon(
            (edge * wide * 0.72, 2.5),
            (edge * wide * 0.78, 2.5),
            (edge * wide * 0.8, 12),
            (edge * wide * 0.7, 12),
        )
        shapes.append(trunk.shape(arm, shaded(cloth, 0.72)))
    match look.clothes:
        case "rows":
            shapes += [
                trunk.shape(box(-wide * 0.97, y, wide * 0.97, y + 0.22), second)
                for y in (1.9, 2.5, 3.1, 3.7, 4.3)
            ]
        case "columns":
            shapes += [
                trunk.shape(box(x * wide - 0.1, 1.75, x * wide + 0.1, 9), second)
                for x in (-0.75, -0.38, 0, 0.38, 0.75)
            ]
        case "dots":
            spots = [
                (x + 0.25 * (row % 2), 1.9 + 0.45 * row)
                for row in range(5)
                for x in (-1.1, -0.55, 0.0, 0.55, 1.1)
            ]
            shapes += [trunk.shape(ellipse(x, y, 0.12, 0.12)[::2], second) for x, y in spots]
        case "hood":
            shapes.append(trunk.shape(ellipse(0, 1.35, 0.95, 0.5), shaded(cloth, 0.75)))
        case _:
            pass
    neck = box(-0.38, 0.4, 0.38, 1.5)
    shapes += [
        trunk.shape(ellipse(0, 1.4, 0.5, 0.28), shaded(look.skin, 0.82)),
        trunk.shape(neck, shaded(look.skin, 0.82)),
    ]
    match look.clothes:
        case "collar":
            shapes += [
                trunk.shape(polygon((0, 1.95), (s * 0.75, 1.6), (s * 0.42, 1.15)), second) for s in (-1, 1)
            ]
        case "tie":
            shapes += [
                trunk.shape(polygon((0, 2.1), (s * 0.75, 1.65), (s * 0.42, 1.15)), (236, 236, 238))
                for s in (-1, 1)
            ]
            shapes.append(trunk.shape(polygon((-0.12, 1.65), (0.12, 1.65), (0.22, 4), (-0.22, 4)), second))
        case "neckline":
            shapes.append(
                trunk.shape(polygon((-0.45, 1.35), (0.45, 1.35), (0, 2.2)), shaded(look.skin, 0.92))
            )
        case _:
            pass
    return shapes


def _skull(look: Look, head: Joint, turn: Floats) -> list[Shape]:
    wide, skin = look.width, look.skin
    jaw = polygon(
        (-wide, -0.25), (-wide * 0.86, -0.7), (-wide * 0.5, -0.95), (0, -1.02), (wide * 0.5, -0.95), (wide * 0.86, -0.7),
        (wide, -0.25), (wide * 0.97, 0.2), (wide * 0.8, 0.62), (wide * 0.42, 0.94), (0, 1.02), (-wide * 0.42, 0.94),
        (-wide * 0.8, 0.62), (-wide * 0.97, 0.2),
    )  # fmt: skip
    ears = [
        head.shape(ellipse(s * wide, 0.02, 0.16, 0.24)[::2], shaded(skin, 0.86), -0.5 * turn) for s in (-1, 1)
    ]
    face = head.shape(jaw, skin)
    if abs(look.light_side) < 0.08:
        return [*ears, face]
    side = 1 if look.light_side > 0 else -1
    shade = jaw.copy()
    shade[:, 0] = np.where(shade[:, 0] * side > 0, shade[:, 0], 0.25 * wide * side)
    return [*ears, face, head.shape(cv_hull(shade), shaded(skin, 1 - abs(look.light_side)))]


def cv_hull(outline_N2: Floats) -> Floats:
    """The convex hull of an outline."""
    import cv2

    return np.asarray(cv2.convexHull(outline_N2)[:, 0], np.float32)


def _features(look: Look, head: Joint, turn: Floats, moves: Moves) -> list[Shape]:
    skin, shapes = look.skin, []
    lip = mixed(skin, (150, 40, 50), 0.45)
    if look.beard:
        beard = polygon((-look.width * 0.95, 0.2), (-0.3, 0.38), (0.3, 0.38), (look.width * 0.95, 0.2), (look.width * 0.8, 0.68),
                        (look.width * 0.4, 1.08), (-look.width * 0.4, 1.08), (-look.width * 0.8, 0.68))  # fmt: skip
        shapes.append(head.shape(cv_hull(beard), mixed(skin, look.hair, look.beard), 0.3 * turn))
    ones = np.ones_like(moves.mouth_T)
    gape = np.stack([ones - 0.2 * moves.mouth_T, 0.25 + moves.mouth_T], axis=1)
    at = np.array((0, 0.52), np.float32)
    shapes += [
        head.shape(ellipse(0, 0, 0.3, 0.12), lip, turn + at, 0.4 + 0.6 * gape + np.float32((0, 0.3))),
        head.shape(ellipse(0, 0, 0.24, 0.2), (70, 20, 24), turn + at, gape),
        head.shape(polygon((0, -0.1), (0.13, 0.25), (-0.13, 0.25)), shaded(skin, 0.84), 1.3 * turn),
    ]
    lids = np.stack([ones, 1 - 0.85 * moves.blink_T], axis=1)
    for side in (-1, 1):
        spot = turn + np.float32((side * 0.34, -0.18))
        if look.glasses in {"thin", "thick"}:
            rim = 0.29 if look.glasses == "thick" else 0.26
            shapes += [
                head.shape(ellipse(0, 0, rim, rim * 0.9), shaded(look.second, 0.4), spot),
                head.shape(ellipse(0, 0, 0.19, 0.17), mixed(skin, (230, 240, 250), 0.25), spot),
            ]
        shapes += [
            head.shape(ellipse(0, 0, 0.16, 0.09), (238, 236, 232), spot, lids),
            head.shape(ellipse(0, 0, 0.08, 0.09), (46, 36, 34), spot + 0.12 * turn, lids),
            head.shape(
                box(side * 0.34 - 0.2, -0.42, side * 0.34 + 0.2, -0.34), mixed(skin, look.hair, 0.75), turn
            ),
        ]
        if look.glasses == "sun":
            shapes.append(head.shape(ellipse(0, 0, 0.3, 0.24), DARK, spot))
    if look.glasses:
        shapes.append(head.shape(box(-0.7, -0.24, 0.7, -0.18) if look.glasses == "sun" else box(-0.12, -0.22, 0.12, -0.16),
                                 DARK if look.glasses == "sun" else shaded(look.second, 0.4), turn))  # fmt: skip
    return shapes


def _hair(look: Look, head: Joint, turn: Floats) -> list[Shape]:
    wide, hair = look.width * 1.06, look.hair
    top = [
        (-wide * 0.88, -0.78),
        (-wide * 0.52, -1.06),
        (0, -1.16),
        (wide * 0.52, -1.06),
        (wide * 0.88, -0.78),
    ]
    match look.style:
        case "bald":
            return []
        case "buzz":
            return [
                head.shape(
                    polygon((-wide * 0.9, -0.55), *top, (wide * 0.9, -0.55)),
                    mixed(look.skin, hair, 0.7),
                    0.2 * turn,
                )
            ]
        case "side":
            sweep = polygon((-wide, -0.1), (-wide * 1.02, -0.6), *top, (wide * 0.98, -0.62))
            return [head.shape(sweep, hair, 0.25 * turn)]
        case "crest":
            return [
                head.shape(polygon((-0.2, -0.6), (-0.24, -1.5), (0.24, -1.5), (0.2, -0.6)), hair, 0.3 * turn)
            ]
        case _:
            burns = [
                head.shape(box(s * wide * 0.92 - 0.1, -0.6, s * wide * 0.92 + 0.1, 0.12), hair)
                for s in (-1, 1)
            ]
            cap = polygon((-wide, -0.36), *top, (wide, -0.36), (wide * 0.5, -0.58), (-wide * 0.5, -0.58))
            return [*burns, head.shape(cv_hull(cap), hair, 0.2 * turn)] if look.style == "short" else [
                *burns, head.shape(polygon((-wide, -0.5), *top, (wide, -0.5)), hair, 0.2 * turn)]  # fmt: skip


def _hat(look: Look, head: Joint) -> list[Shape]:
    wide, colour = look.width * 1.12, look.hat_colour
    crown = polygon(
        (-wide, -0.5),
        (-wide * 0.95, -0.95),
        (-wide * 0.5, -1.3),
        (wide * 0.5, -1.3),
        (wide * 0.95, -0.95),
        (wide, -0.5),
    )
    match look.hat:
        case "beanie":
            return [
                head.shape(crown, colour),
                head.shape(box(-wide * 1.02, -0.72, wide * 1.02, -0.48), shaded(colour, 0.78)),
            ]
        case "cap":
            return [
                head.shape(crown, colour),
                head.shape(ellipse(0, -0.55, wide * 1.02, 0.18), shaded(colour, 0.7)),
            ]
        case "headphones":
            band = polygon((-wide, -0.2), (-wide * 0.9, -0.9), (0, -1.32), (wide * 0.9, -0.9), (wide, -0.2))
            strip = [
                head.shape(polygon(tuple(a), tuple(b), tuple(b * 0.9), tuple(a * 0.9)), DARK)
                for a, b in zip(band[:-1], band[1:], strict=True)
            ]
            return [
                *strip,
                *(head.shape(ellipse(s * wide, 0.02, 0.2, 0.34), shaded(colour, 0.6)) for s in (-1, 1)),
            ]
        case _:
            return []

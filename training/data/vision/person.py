"""The shapes of a drawn user: head and body as they move.

The head's own coordinates: the face's centre is 0, its chin 1, its brow -1; the body hangs below it.
Shape suffixes: T frames.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from training.data.vision.look import Look
from training.data.vision.shapes import (
    Floats,
    Joint,
    Rgb,
    Shape,
    box,
    ellipse,
    floats,
    mirrored,
    mixed,
    polygon,
    shaded,
)

DARK: Rgb = (24, 20, 22)
SIDES = (-1, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """How somebody moves, [T] each.

    Face centre [T, 2] and half the face's height in pixels, roll in radians, turn to the right -1 to 1,
    mouth and lids 0 to 1.
    """

    face_T2: Floats
    radius_T: Floats
    roll_T: Floats
    turn_T: Floats
    mouth_T: Floats
    blink_T: Floats


def draw_person(look: Look, moves: Moves) -> list[Shape]:
    """All shapes of a person, the hindmost first."""
    head = Joint.of(moves.face_T2, moves.radius_T, moves.roll_T, look.aspect)
    # The trunk stays upright and follows the head's leaning only in part.
    lean_T2 = np.stack([-0.9 * np.sin(moves.roll_T) * moves.radius_T * look.aspect, 0 * moves.roll_T], axis=1)
    trunk = Joint.of(moves.face_T2 + lean_T2, moves.radius_T, 0.15 * moves.roll_T, look.aspect)
    turn_T2 = np.stack([0.34 * moves.turn_T, 0 * moves.turn_T], axis=1).astype(np.float32)
    shapes = [*_behind(look, head), *_body(look, trunk), *_neck(look, trunk), *_skull(look, head, turn_T2)]
    shapes += _beard(look, head, turn_T2)
    shapes += _mouth(look, head, turn_T2, moves.mouth_T)
    for side in SIDES:
        shapes += _eye(look, head, turn_T2, moves.blink_T, side)
    shapes += _bridge(look, head, turn_T2)
    return [*shapes, *_hair(look, head, turn_T2), *_hat(look, head)]


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
            outline = mirrored((0.22, -0.4), (0.2, -1.6), (0.02, -1.75))
        case _:
            return []
    return [head.shape(outline, shaded(look.hair, 0.85))]


def _body(look: Look, trunk: Joint) -> list[Shape]:
    wide, cloth = look.shoulders, look.cloth
    outline = mirrored(
        (0.4, 1.25), (wide * 0.75, 1.5), (wide * 0.95, 1.8), (wide * 1.08, 2.6), (wide * 1.15, 12)
    )
    fold = polygon((wide * 0.72, 2.5), (wide * 0.78, 2.5), (wide * 0.8, 12), (wide * 0.7, 12))
    shapes = [trunk.shape(outline, cloth)]
    shapes += [trunk.shape(fold * floats((side, 1)), shaded(cloth, 0.72)) for side in SIDES]
    match look.clothes:
        case "rows":
            prints = [box(-wide * 0.97, y, wide * 0.97, y + 0.22) for y in (1.9, 2.5, 3.1, 3.7, 4.3)]
        case "columns":
            prints = [box(x * wide - 0.1, 1.75, x * wide + 0.1, 9) for x in (-0.75, -0.38, 0, 0.38, 0.75)]
        case "dots":
            spots = itertools.product(range(5), (-1.1, -0.55, 0.0, 0.55, 1.1))
            prints = [ellipse(x + 0.25 * (row % 2), 1.9 + 0.45 * row, 0.12, 0.12)[::2] for row, x in spots]
        case _:
            prints = []
    return [*shapes, *(trunk.shape(outline, look.second) for outline in prints)]


def _neck(look: Look, trunk: Joint) -> list[Shape]:
    shadow = shaded(look.skin, 0.8)
    shapes = [
        trunk.shape(ellipse(0, 1.4, 0.5, 0.28), shadow),
        trunk.shape(box(-0.38, 0.4, 0.38, 1.5), shadow),
    ]
    match look.clothes:
        case "hood":
            return [trunk.shape(ellipse(0, 1.35, 0.95, 0.5), shaded(look.cloth, 0.75)), *shapes]
        case "collar":
            flap = polygon((0, 1.95), (0.75, 1.6), (0.42, 1.15))
            return [*shapes, *(trunk.shape(flap * floats((side, 1)), look.second) for side in SIDES)]
        case "tie":
            flap = polygon((0, 2.1), (0.75, 1.65), (0.42, 1.15))
            shapes += [trunk.shape(flap * floats((side, 1)), (236, 236, 238)) for side in SIDES]
            return [*shapes, trunk.shape(mirrored((0.12, 1.65), (0.22, 4)), look.second)]
        case "neckline":
            return [*shapes, trunk.shape(mirrored((0.45, 1.35), (0.02, 2.2)), shaded(look.skin, 0.92))]
        case _:
            return shapes


def _skull(look: Look, head: Joint, turn_T2: Floats) -> list[Shape]:
    wide, skin = look.width, look.skin
    half = ((0, -1.02), (wide * 0.5, -0.95), (wide * 0.86, -0.7), (wide, -0.25), (wide * 0.97, 0.2),
            (wide * 0.8, 0.62), (wide * 0.42, 0.94), (0, 1.02))  # fmt: skip
    ears = [ellipse(side * wide, 0.02, 0.16, 0.24)[::2] for side in SIDES]
    shapes = [head.shape(ear, shaded(skin, 0.86), -0.5 * turn_T2) for ear in ears]
    shapes.append(head.shape(mirrored(*half), skin))
    side = 1 if look.shade > 0 else -1
    for inner, share in ((0.55, 0.6), (0.2, 1.0)):  # light from one side, in two steps
        dark = polygon(*((side * max(x, (1 - inner) * wide), y) for x, y in half))
        shapes.append(head.shape(dark, shaded(skin, 1 - share * abs(look.shade))))
    return shapes


def _beard(look: Look, head: Joint, turn_T2: Floats) -> list[Shape]:
    wide = look.width
    if not look.beard:
        return []
    outline = mirrored((0.3, 0.34), (wide * 0.95, 0.2), (wide * 0.8, 0.68), (wide * 0.4, 1.08))
    return [head.shape(outline, mixed(look.skin, look.hair, look.beard), 0.3 * turn_T2)]


def _mouth(look: Look, head: Joint, turn_T2: Floats, mouth_T: Floats) -> list[Shape]:
    skin, at = look.skin, floats((0, 0.54))
    lip = mixed(skin, (150, 40, 50), 0.45 * look.contrast)
    lips_T2 = np.stack([1 - 0.2 * mouth_T, 0.55 + 0.8 * mouth_T], axis=1).astype(np.float32)
    gape_T2 = np.stack([1 - 0.2 * mouth_T, 0.15 + mouth_T], axis=1).astype(np.float32)
    return [
        head.shape(polygon((0.02, -0.1), (0.13, 0.25), (-0.13, 0.25)), shaded(skin, 0.84), 1.3 * turn_T2),
        head.shape(ellipse(0, 0, 0.3, 0.2), lip, turn_T2 + at, lips_T2),
        head.shape(ellipse(0, 0, 0.25, 0.2), mixed(skin, (60, 16, 20), look.contrast), turn_T2 + at, gape_T2),
    ]


def _eye(look: Look, head: Joint, turn_T2: Floats, blink_T: Floats, side: int) -> list[Shape]:
    skin, spot_T2 = look.skin, turn_T2 + floats((side * 0.34, -0.18))
    brow = box(side * 0.34 - 0.2, -0.42, side * 0.34 + 0.2, -0.34)
    shapes = [head.shape(brow, mixed(skin, look.hair, 0.75 * look.contrast), turn_T2)]
    match look.glasses:
        case "sun":
            return [*shapes, head.shape(ellipse(0, 0, 0.3, 0.24), DARK, spot_T2)]
        case "thin" | "thick":
            rim = 0.29 if look.glasses == "thick" else 0.26
            shapes += [
                head.shape(ellipse(0, 0, rim, rim * 0.9), shaded(look.second, 0.4), spot_T2),
                head.shape(ellipse(0, 0, 0.19, 0.17), mixed(skin, (230, 240, 250), 0.25), spot_T2),
            ]
        case _:
            shapes.append(head.shape(ellipse(0, 0.02, 0.22, 0.16), shaded(skin, 0.86), spot_T2))
    lids_T2 = np.stack([np.ones_like(blink_T), 1 - 0.85 * blink_T], axis=1)
    white = mixed(skin, (238, 236, 232), look.contrast**2)
    return [
        *shapes,
        head.shape(ellipse(0, 0, 0.16, 0.085), white, spot_T2, lids_T2),
        head.shape(ellipse(0, 0, 0.085, 0.09), mixed(skin, (40, 32, 30), look.contrast), spot_T2, lids_T2),
    ]


def _bridge(look: Look, head: Joint, turn_T2: Floats) -> list[Shape]:
    match look.glasses:
        case "sun":
            return [head.shape(box(-0.7, -0.24, 0.7, -0.18), DARK, turn_T2)]
        case "thin" | "thick":
            return [head.shape(box(-0.12, -0.22, 0.12, -0.16), shaded(look.second, 0.4), turn_T2)]
        case _:
            return []


def _hair(look: Look, head: Joint, turn_T2: Floats) -> list[Shape]:
    wide, hair = look.width * 1.06, look.hair
    top = ((wide * 0.88, -0.78), (wide * 0.52, -1.06), (0.0, -1.16))
    match look.style:
        case "bald":
            return []
        case "buzz":
            return [
                head.shape(mirrored((wide * 0.9, -0.55), *top), mixed(look.skin, hair, 0.7), 0.2 * turn_T2)
            ]
        case "side":
            left = ((-wide, -0.1), (-wide * 1.02, -0.6), *((-x, y) for x, y in top))
            return [head.shape(polygon(*left, *top, (wide * 0.98, -0.62)), hair, 0.25 * turn_T2)]
        case "crest":
            return [head.shape(mirrored((0.2, -0.6), (0.24, -1.5)), hair, 0.3 * turn_T2)]
        case style:
            burns = [box(side * wide * 0.92 - 0.1, -0.6, side * wide * 0.92 + 0.1, 0.12) for side in SIDES]
            fringe = mirrored((wide, -0.36 if style == "short" else -0.5), *top)
            return [*(head.shape(burn, hair) for burn in burns), head.shape(fringe, hair, 0.2 * turn_T2)]


def _hat(look: Look, head: Joint) -> list[Shape]:
    wide, colour = look.width * 1.12, look.hat_colour
    crown = mirrored((wide, -0.5), (wide * 0.95, -0.95), (wide * 0.5, -1.3))
    match look.hat:
        case "beanie":
            rim = box(-wide * 1.02, -0.72, wide * 1.02, -0.48)
            return [head.shape(crown, colour), head.shape(rim, shaded(colour, 0.78))]
        case "cap":
            peak = ellipse(0, -0.55, wide * 1.02, 0.18)
            return [head.shape(crown, colour), head.shape(peak, shaded(colour, 0.7))]
        case "brim":
            brim = ellipse(0, -0.62, wide * 1.6, 0.2)
            return [head.shape(crown, colour), head.shape(brim, shaded(colour, 0.75))]
        case "headphones":
            band = ((-wide, -0.2), (-wide * 0.9, -0.9), (0.0, -1.32), (wide * 0.9, -0.9), (wide, -0.2))
            strips = [polygon(a, b, (b[0] * 0.9, b[1] * 0.9), (a[0] * 0.9, a[1] * 0.9))
                      for a, b in itertools.pairwise(band)]  # fmt: skip
            shells = [ellipse(side * wide, 0.02, 0.2, 0.34) for side in SIDES]
            return [
                *(head.shape(strip, DARK) for strip in strips),
                *(head.shape(shell, shaded(colour, 0.6)) for shell in shells),
            ]
        case _:
            return []

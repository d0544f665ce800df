"""Who a drawn user is: skin, hair, glasses, hat and clothes."""

import colorsys
from dataclasses import dataclass

import numpy as np

from training.data.vision.shapes import Rgb, mixed, shaded

SKINS: tuple[Rgb, ...] = (
    (255, 226, 205), (246, 208, 178), (234, 188, 152), (222, 170, 130), (200, 146, 106),
    (172, 120, 84), (140, 94, 64), (110, 72, 48), (82, 54, 38), (58, 38, 28),
)  # fmt: skip
HAIRS: tuple[Rgb, ...] = (
    (22, 18, 18), (44, 30, 24), (74, 48, 32), (112, 74, 44), (158, 112, 62), (206, 168, 104),
    (232, 208, 160), (150, 66, 34), (128, 128, 130), (208, 208, 208), (196, 60, 120), (60, 90, 170),
)  # fmt: skip
STYLES = ("bald", "buzz", "short", "short", "side", "long", "bob", "afro", "bun")
HELD_OUT_LOOKS = ("crest", "brim", "beard and glasses")
CLOTHES = ("plain", "plain", "hood", "collar", "rows", "columns", "dots", "tie", "neckline")
HATS = ("beanie", "cap", "headphones")
TALL_STYLES = {"crest", "bun", "afro"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """Who somebody is. Widths are in halves of the face's height; `beard`, `contrast`, `shade` are shares."""

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
    contrast: float
    shade: float

    @property
    def held_out(self) -> bool:
        """Whether it is of a kind that no training draws."""
        return self.style == "crest" or self.hat == "brim" or bool(self.beard and self.glasses)


def any_colour(rng: np.random.Generator, saturation: float = 1.0) -> Rgb:
    """A colour of any kind, at most so saturated."""
    red, green, blue = colorsys.hsv_to_rgb(
        rng.uniform(), rng.uniform() ** 0.7 * saturation, rng.uniform(0.08, 0.98)
    )
    return red * 255, green * 255, blue * 255


def skin_of(rng: np.random.Generator) -> Rgb:
    """Any skin from very light to very dark."""
    at = rng.uniform(0, len(SKINS) - 1)
    return mixed(SKINS[int(at)], SKINS[int(at) + 1], at % 1)


def somebody(rng: np.random.Generator, *, held_out: bool) -> Look:
    """Draw a person; each held-out one has a crest of hair, a brimmed hat, or glasses with a beard."""
    style = STYLES[rng.integers(len(STYLES))]
    beard = float(rng.uniform(0.4, 1)) if rng.uniform() < 0.25 else 0.0
    glasses = str(rng.choice(["thin", "thick", "sun"], p=[0.45, 0.4, 0.15])) if rng.uniform() < 0.3 else ""
    if glasses:
        beard = 0.0
    hat = HATS[rng.integers(len(HATS))] if rng.uniform() < 0.2 and style not in TALL_STYLES else ""
    if held_out:
        match HELD_OUT_LOOKS[rng.integers(len(HELD_OUT_LOOKS))]:
            case "crest":
                style, hat = "crest", ""
            case "brim":
                style, hat = "short", "brim"
            case _:
                beard, glasses = 0.9, glasses or "thick"
    return Look(
        skin=skin_of(rng),
        hair=shaded(HAIRS[rng.integers(len(HAIRS))], rng.uniform(0.85, 1.15)),
        style=style,
        beard=beard,
        glasses=glasses,
        hat=hat,
        hat_colour=any_colour(rng),
        clothes=CLOTHES[rng.integers(len(CLOTHES))],
        cloth=any_colour(rng),
        second=any_colour(rng),
        width=float(rng.uniform(0.68, 0.86)),
        shoulders=float(rng.uniform(1.6, 2.4)),
        aspect=float(rng.uniform(0.8, 1.05)),
        contrast=float(rng.uniform(0.4, 1.0)),
        shade=float(rng.choice([-1, 1]) * rng.uniform(0, 0.35)),
    )

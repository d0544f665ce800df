"""What colours are called: the paint of things, and what may become of it before a camera."""

import colorsys

from shared.models.pocket.dialogue.replies import Colour
from training.data.vision.shapes import Rgb

Range = tuple[float, float]

#  hue in degrees, saturation, value. What lies between two names is left out.
PAINTS: dict[Colour, tuple[Range, Range, Range]] = {
    Colour.RED: ((-10, 8), (0.7, 1.0), (0.5, 0.95)),
    Colour.ORANGE: ((21, 33), (0.78, 1.0), (0.82, 1.0)),
    Colour.YELLOW: ((49, 61), (0.65, 1.0), (0.8, 1.0)),
    Colour.GREEN: ((92, 155), (0.5, 1.0), (0.4, 0.9)),
    Colour.BLUE: ((203, 236), (0.6, 1.0), (0.5, 1.0)),
    Colour.PURPLE: ((270, 298), (0.45, 0.9), (0.45, 0.9)),
    Colour.WHITE: ((0, 360), (0.0, 0.06), (0.9, 1.0)),
    Colour.BLACK: ((0, 360), (0.0, 0.3), (0.03, 0.13)),
}
# The same in the picture, after light and camera: a little wider, and bright enough to be named.
SEEN: dict[Colour, tuple[Range, Range, Range]] = {
    Colour.RED: ((-16, 12), (0.6, 1.0), (0.32, 1.0)),
    Colour.ORANGE: ((17, 37), (0.65, 1.0), (0.55, 1.0)),
    Colour.YELLOW: ((45, 66), (0.5, 1.0), (0.55, 1.0)),
    Colour.GREEN: ((86, 165), (0.4, 1.0), (0.3, 1.0)),
    Colour.BLUE: ((196, 242), (0.5, 1.0), (0.34, 1.0)),
    Colour.PURPLE: ((262, 308), (0.42, 1.0), (0.34, 1.0)),
    Colour.WHITE: ((0, 360), (0.0, 0.24), (0.6, 1.0)),
    Colour.BLACK: ((0, 360), (0.0, 1.0), (0.0, 0.17)),
}


def nameable(name: Colour, seen: Rgb) -> bool:
    """Whether a person would call what is seen (0 to 255 and over) by that name."""
    red, green, blue = (min(1.0, part / 255) for part in seen)
    hue, strength, value = colorsys.rgb_to_hsv(red, green, blue)
    hues, strengths, values = SEEN[name]
    within = (hue * 360 - hues[0]) % 360 <= hues[1] - hues[0]
    return within and strengths[0] <= strength <= strengths[1] and values[0] <= value <= values[1]

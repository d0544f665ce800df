"""What `wan-pocket` understands: a prompt read as seven choices. Whatever else is said is taken for the nearest.

    [a|one|two|three] [small|large] [colour] [shape] [moves ... | spins | bounces] [slowly|fast] over a [place]
"""

import difflib
import enum
import re
from dataclasses import dataclass


class Number(enum.Enum):
    """How many things there are."""

    ONE = "one"
    TWO = "two"
    THREE = "three"


class Size(enum.Enum):
    """How large they are."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class Colour(enum.Enum):
    """Their colour."""

    RED = "red"
    ORANGE = "orange"
    YELLOW = "yellow"
    GREEN = "green"
    BLUE = "blue"
    PURPLE = "purple"
    WHITE = "white"
    BLACK = "black"


class Shape(enum.Enum):
    """What they are."""

    CIRCLE = "circle"
    SQUARE = "square"
    TRIANGLE = "triangle"
    STAR = "star"
    BALLOON = "balloon"
    FISH = "fish"


class Motion(enum.Enum):
    """What they do."""

    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"
    SPIN = "spin"
    BOUNCE = "bounce"


class Speed(enum.Enum):
    """How fast."""

    SLOWLY = "slowly"
    STEADILY = "steadily"
    FAST = "fast"


class Place(enum.Enum):
    """What is behind them; the value is how a prompt says it."""

    SKY = "blue sky"
    FIELD = "green field"
    WALL = "white wall"
    NIGHT = "black night"
    DESERT = "yellow desert"
    SUNSET = "orange sunset"
    SEA = "blue sea"


@dataclass(frozen=True, kw_only=True, slots=True)
class PocketPrompt:
    """A prompt as the model takes it; the defaults stand for what a prompt leaves open."""

    number: Number = Number.ONE
    size: Size = Size.MEDIUM
    colour: Colour = Colour.RED
    shape: Shape = Shape.CIRCLE
    motion: Motion = Motion.RIGHT
    speed: Speed = Speed.STEADILY
    place: Place = Place.SKY

    def words(self) -> str:
        """The prompt in its plainest wording."""
        one = self.number is Number.ONE
        plural = "" if one or self.shape is Shape.FISH else "s"
        number = "a" if one else self.number.value
        size = "" if self.size is Size.MEDIUM else f" {self.size.value}"
        if self.motion in {Motion.SPIN, Motion.BOUNCE}:
            does = self.motion.value + ("s" if one else "")
        else:
            does = f"move{'s' if one else ''} {self.motion.value}"
        speed = "" if self.speed is Speed.STEADILY else f" {self.speed.value}"
        article = "an" if self.place is Place.SUNSET else "a"
        number = "an" if number == "a" and not size and self.colour is Colour.ORANGE else number
        return (
            f"{number}{size} {self.colour.value} {self.shape.value}{plural} {does}{speed}"
            f" over {article} {self.place.value}"
        )


SLOTS: dict[str, type[enum.Enum]] = {
    "number": Number, "size": Size, "colour": Colour, "shape": Shape, "motion": Motion, "speed": Speed, "place": Place,
}  # fmt: skip

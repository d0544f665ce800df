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

OTHER_WORDS: dict[str, dict[str, str]] = {
    "number": {"a": "one", "an": "one", "single": "one", "1": "one", "2": "two", "couple": "two", "pair": "two", "both": "two",
               "3": "three", "few": "three", "several": "three", "many": "three", "some": "three", "four": "three",
               "five": "three", "group": "three"},
    "size": {"tiny": "small", "little": "small", "mini": "small", "big": "large", "huge": "large", "giant": "large",
             "great": "large", "enormous": "large", "normal": "medium"},
    "colour": {"crimson": "red", "scarlet": "red", "pink": "red", "ruby": "red", "gold": "yellow", "golden": "yellow",
               "amber": "orange", "brown": "orange", "lime": "green", "emerald": "green", "navy": "blue", "cyan": "blue",
               "turquoise": "blue", "azure": "blue", "violet": "purple", "magenta": "purple", "lilac": "purple",
               "silver": "white", "grey": "black", "gray": "black", "dark": "black"},
    "shape": {"ball": "circle", "disc": "circle", "disk": "circle", "dot": "circle", "sphere": "circle", "ring": "circle",
              "wheel": "circle", "sun": "circle", "moon": "circle", "planet": "circle", "apple": "circle",
              "box": "square", "cube": "square", "block": "square", "rectangle": "square", "house": "square",
              "car": "square", "pyramid": "triangle", "cone": "triangle", "tent": "triangle", "tree": "triangle",
              "arrow": "triangle", "asterisk": "star", "flower": "star", "snowflake": "star", "starfish": "star",
              "bird": "fish", "shark": "fish", "whale": "fish", "cat": "fish", "dog": "fish", "person": "balloon",
              "airship": "balloon", "lantern": "balloon"},
    "motion": {"leftward": "left", "leftwards": "left", "rightward": "right", "rightwards": "right", "upward": "up",
               "upwards": "up", "rises": "up", "rise": "up", "rising": "up", "climbs": "up", "ascends": "up",
               "downward": "down", "downwards": "down", "falls": "down", "fall": "down", "falling": "down",
               "sinks": "down", "sink": "down", "drops": "down", "descends": "down", "spins": "spin",
               "spinning": "spin", "rotates": "spin", "rotate": "spin", "rotating": "spin", "turns": "spin",
               "bounces": "bounce", "bouncing": "bounce", "jumps": "bounce", "jump": "bounce", "jumping": "bounce",
               "hops": "bounce"},
    "speed": {"slow": "slowly", "gently": "slowly", "calmly": "slowly", "quickly": "fast", "quick": "fast",
              "rapidly": "fast", "swiftly": "fast", "speedily": "fast"},
    "place": {"sky": "blue sky", "clouds": "blue sky", "air": "blue sky", "day": "blue sky", "field": "green field",
              "grass": "green field", "meadow": "green field", "hills": "green field", "forest": "green field",
              "garden": "green field", "park": "green field", "wall": "white wall", "room": "white wall",
              "bricks": "white wall", "city": "white wall", "night": "black night", "space": "black night",
              "stars": "black night", "desert": "yellow desert", "sand": "yellow desert", "beach": "yellow desert",
              "dunes": "yellow desert", "sunset": "orange sunset", "sunrise": "orange sunset", "dusk": "orange sunset",
              "evening": "orange sunset", "sea": "blue sea", "ocean": "blue sea", "water": "blue sea",
              "lake": "blue sea", "river": "blue sea"},
}  # fmt: skip
PLACE_WORDS = ("over", "above", "in", "on", "under", "at", "through", "across", "against", "before", "with")
PASSING_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "and",
        "of",
        "is",
        "are",
        "it",
        "its",
        "that",
        "which",
        "to",
        "moves",
        "move",
        "moving",
        "goes",
        "go",
        "going",
        "flies",
        "fly",
        "flying",
        "swims",
        "swim",
        "swimming",
        "floats",
        "float",
        "floating",
        "runs",
        "run",
        "drives",
        "drifts",
        "drift",
        "drifting",
        "sails",
        "around",
        "very",
        "background",
    ]
)
NEAR = 0.78  # how alike two words must be, of 1, for one to be taken for a mistyped other


def read_prompt(text: str) -> tuple[PocketPrompt, list[str]]:
    """The choices that a prompt comes to, and a sentence for whatever was taken for something else or left out.

    What comes after "over", "in" and the like is the place, what comes before is what is seen there. Only the
    first thing that is named is shown.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    split = next((n for n, word in enumerate(words) if word in PLACE_WORDS and n), len(words))
    found: dict[str, str] = {}
    reader = _Reader(found)
    for word in words[:split]:
        reader.take(word, [slot for slot in SLOTS if slot != "place"])
    for word in words[split:]:
        reader.take_place(word)
    warnings = [*reader.taken]
    if reader.unknown:
        warnings.append("not understood and left out: " + ", ".join(reader.unknown))
    choices = {slot: kind(found[slot]) for slot, kind in SLOTS.items() if slot in found}
    prompt = PocketPrompt(**choices)  # type: ignore[arg-type]
    if "shape" not in found or reader.unknown:
        warnings.append(f"taken for: {prompt.words()}")
    return prompt, warnings


class _Reader:
    """Fills slots from words, each with the first word that says something of it."""

    def __init__(self, found: dict[str, str]) -> None:
        self.found = found
        self.taken: list[str] = []
        self.unknown: list[str] = []

    def take(self, word: str, slots: list[str]) -> None:
        if word in PASSING_WORDS and not (word in {"a", "an"} and "number" not in self.found):
            return
        for slot in slots:
            if (value := _meant(word, slot)) is not None:
                self._set(slot, value, word)
                return
        near = {slot: _nearest(word, slot) for slot in slots}
        likeness, slot = max((match[0], slot) for slot, match in near.items())
        if likeness >= NEAR:
            self._set(slot, near[slot][1], word)
            self.taken.append(f"{word!r} taken for {near[slot][1]!r}")
        else:
            self.unknown.append(word)

    def take_place(self, word: str) -> None:
        """A word behind "over": its noun decides, its colour is the place's own."""
        if word in PLACE_WORDS or word in PASSING_WORDS or word in {c.value for c in Colour}:
            return
        if "place" in self.found:
            self.take(word, ["motion", "speed"])
        else:
            self.take(word, ["place", "motion", "speed"])

    def _set(self, slot: str, value: str, word: str) -> None:
        if slot not in self.found:
            self.found[slot] = value
        elif self.found[slot] != value:
            self.unknown.append(word)


def _meant(word: str, slot: str) -> str | None:
    """The value that a word stands for, also in the plural."""
    values = {choice.value for choice in SLOTS[slot]}
    for form in (word, word.removesuffix("s"), word.removesuffix("es")):
        if form in values:
            return form
        if form in OTHER_WORDS[slot]:
            return OTHER_WORDS[slot][form]
    return None


def _nearest(word: str, slot: str) -> tuple[float, str]:
    """How alike the nearest known word is, and what it stands for."""
    known = {choice.value: choice.value for choice in SLOTS[slot]} | OTHER_WORDS[slot]
    likeness = {form: difflib.SequenceMatcher(None, word, form).ratio() for form in known}
    best = max(likeness, key=lambda form: likeness[form])
    return likeness[best], known[best]

"""What `wan-pocket` understands: a prompt read as seven choices, other words taken for the nearest.

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


class FilmColour(enum.Enum):
    """Their colour."""

    RED = "red"
    ORANGE = "orange"
    YELLOW = "yellow"
    GREEN = "green"
    BLUE = "blue"
    PURPLE = "purple"
    WHITE = "white"
    BLACK = "black"


class Figure(enum.Enum):
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
    colour: FilmColour = FilmColour.RED
    shape: Figure = Figure.CIRCLE
    motion: Motion = Motion.RIGHT
    speed: Speed = Speed.STEADILY
    place: Place = Place.SKY

    def words(self) -> str:
        """The prompt in its plainest wording."""
        one = self.number is Number.ONE
        plural = "" if one or self.shape is Figure.FISH else "s"
        number = "a" if one else self.number.value
        size = "" if self.size is Size.MEDIUM else f" {self.size.value}"
        if self.motion in {Motion.SPIN, Motion.BOUNCE}:
            does = self.motion.value + ("s" if one else "")
        else:
            does = f"move{'s' if one else ''} {self.motion.value}"
        speed = "" if self.speed is Speed.STEADILY else f" {self.speed.value}"
        article = "an" if self.place is Place.SUNSET else "a"
        number = "an" if number == "a" and not size and self.colour is FilmColour.ORANGE else number
        return (
            f"{number}{size} {self.colour.value} {self.shape.value}{plural} {does}{speed}"
            f" over {article} {self.place.value}"
        )


SLOTS: dict[str, type[enum.Enum]] = {
    "number": Number, "size": Size, "colour": FilmColour, "shape": Figure, "motion": Motion, "speed": Speed,
    "place": Place,
}  # fmt: skip

OTHER_WORDS: dict[str, dict[str, str]] = {
    slot: {
        word: line.partition(":")[0].strip()
        for line in text.strip().splitlines()
        for word in line.partition(":")[2].split()
    }
    for slot, text in {
        "number": """
            one: a an single 1
            two: couple pair both 2
            three: few several many some group 3 four five
        """,
        "size": """
            small: tiny little mini
            medium: normal
            large: big huge giant great enormous
        """,
        "colour": """
            red: crimson scarlet pink ruby
            orange: amber brown
            yellow: gold golden
            green: lime emerald
            blue: navy cyan turquoise azure
            purple: violet magenta lilac
            white: silver
            black: grey gray dark
        """,
        "shape": """
            circle: ball disc disk dot sphere ring wheel sun moon planet apple
            square: box cube block rectangle house car
            triangle: pyramid cone tent tree arrow
            star: asterisk flower snowflake starfish
            balloon: airship lantern person
            fish: bird shark whale cat dog
        """,
        "motion": """
            left: leftward leftwards
            right: rightward rightwards
            up: upward upwards rises rise rising climbs ascends
            down: downward downwards falls fall falling sinks sink drops descends
            spin: spinning rotates rotate rotating turns turning
            bounce: bouncing jumps jump jumping hops
        """,
        "speed": """
            slowly: slow gently calmly
            fast: quickly quick rapidly swiftly speedily
        """,
        "place": """
            blue sky: sky clouds air day
            green field: field grass meadow hills forest garden park
            white wall: wall room bricks city
            black night: night space stars
            yellow desert: desert sand beach dunes
            orange sunset: sunset sunrise dusk evening
            blue sea: sea ocean water lake river
        """,
    }.items()
}
"""For each choice other words that stand for one of its values."""

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
    """The choices that a prompt comes to; a sentence for what was taken for something else or left out.

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
    if reader.plural:
        found.setdefault("number", Number.TWO.value)
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
        self.plural = False
        self.taken: list[str] = []
        self.unknown: list[str] = []

    def take(self, word: str, slots: list[str]) -> None:
        if word in PASSING_WORDS and not (word in {"a", "an"} and "number" not in self.found):
            return
        for slot in slots:
            if (value := _meant(word, slot)) is not None:
                self.plural |= slot == "shape" and word.endswith("s")
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
        if word in PLACE_WORDS or word in PASSING_WORDS or word in {c.value for c in FilmColour}:
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

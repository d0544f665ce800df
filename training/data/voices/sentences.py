"""English sentences to speak: everyday talk from patterns, and prose from the manuals on this machine."""

import functools
import hashlib
import pydoc_data.topics
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from training.data.split import Split

HELD_OUT_IN = 40  # one sentence in so many is never trained on; half of these are judged by

WORDS = {
    kind: words.split()
    for kind, words in {
        "name": """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Noah Olive Peter Rosa
            Sam Tom Vera""",
        "thing": """book cup garden river house train window letter picture song dog cat bird tree mountain
            table chair door lamp phone camera garden kitchen street city village ocean island bridge
            market school office paper pencil coffee breakfast dinner apple orange bread cheese soup
            cake car bicycle boat plane ticket jacket shoe hat watch clock mirror bottle basket blanket""",
        "quality": """lovely small big old new quiet warm cold bright dark happy strange simple beautiful
            wonderful green blue red yellow white black heavy light soft round long short clean busy
            empty famous gentle honest""",
        "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday today tomorrow tonight",
        "verb": """see find like want need bring open close carry watch draw paint clean fix borrow remember
            forget choose""",
        "weather": "sunny rainy cloudy windy warm cold lovely terrible beautiful cool hot mild stormy foggy",
        "number": """two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty
            ninety""",
    }.items()
}  # fmt: skip

PATTERNS = (
    "Hello.",
    "Hello, how are you?",
    "Hello, my name is {name}.",
    "Hi {name}, it is nice to meet you.",
    "Good morning, {name}.",
    "Good evening, and welcome.",
    "The weather is {weather} {day}.",
    "It was {weather} on {day}, but now it is {weather}.",
    "I can {verb} a {quality} {thing}.",
    "I would like to {verb} the {quality} {thing}, please.",
    "Do you {verb} the {thing} or the {thing}?",
    "Where is the {quality} {thing}?",
    "What do you see?",
    "I see a {quality} {thing} and a {thing}.",
    "{name} and {name} went to the {thing} on {day}.",
    "My {thing} is {quality}, and your {thing} is {quality}.",
    "Thank you very much, {name}.",
    "You are welcome.",
    "Goodbye, see you on {day}.",
    "Yes, I think so.",
    "No, not {day}.",
    "One, two, three, four, five.",
    "There are {number} {quality} chairs in the room.",
    "Please {verb} the {thing} before {day}.",
    "It takes {number} minutes to {verb} a {thing}.",
    "Why did {name} {verb} the {quality} {thing}?",
    "I am sorry, I did not hear you.",
    "Tell me about the {quality} {thing}.",
    "We will {verb} it {day}, I promise.",
    "That is a {quality} {thing}, {name}.",
)


def split_of(sentence: str) -> Split:
    """The split of a sentence, by a hash of its text: the same on every machine."""
    digest = hashlib.sha256(sentence.lower().encode()).digest()
    if digest[0] % HELD_OUT_IN:
        return Split.TRAIN
    return Split.JUDGE if digest[1] % 2 else Split.WATCH


def everyday(rng: random.Random) -> str:
    """One sentence of small talk."""
    return re.sub(r"{(\w+)}", lambda m: rng.choice(WORDS[m[1]]), rng.choice(PATTERNS))


@functools.cache
def prose() -> tuple[str, ...]:
    """Plain sentences of 3 to 16 words found in Python's own manual and docstrings, sorted and unique."""
    found: set[str] = set()
    for text in _texts():
        flat = re.sub(r"\s+", " ", text)
        for sentence in re.findall(r"(?<=[.!?] )[A-Z][a-z' ,-]{12,110}[.?!](?= |$)", flat):
            if 3 <= len(sentence.split()) <= 16:
                found.add(sentence)
    return tuple(sorted(found))


def _texts() -> Iterator[str]:
    yield from pydoc_data.topics.topics.values()
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py")):
        source = path.read_text(encoding="utf-8", errors="ignore")
        yield from re.findall(r'"""(.*?)"""', source, flags=re.DOTALL)
        yield re.sub(r"\n\s*# ?", " ", source)
    perl = Path("/usr/share/perl")
    for path in [*sorted(perl.glob("*/**/*.pod")), *sorted(perl.glob("*/**/*.pm"))]:
        yield path.read_text(encoding="utf-8", errors="ignore")


def corpus(count: int, seed: int, split: Split) -> list[str]:
    """`count` sentences of one split, half small talk and half prose."""
    rng = random.Random(seed)
    book = [s for s in prose() if split_of(s) is split]
    rng.shuffle(book)
    chosen = book[: count // 2]
    while len(chosen) < count:
        sentence = everyday(rng)
        if split_of(sentence) is split:
            chosen.append(sentence)
    rng.shuffle(chosen)
    return chosen

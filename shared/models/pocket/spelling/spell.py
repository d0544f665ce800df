"""Typed English as words with their phones and the pauses that punctuation asks for."""

from __future__ import annotations

import functools
import gzip
import re
import unicodedata
from dataclasses import dataclass
from importlib import resources

from shared.models.pocket.spelling.letters import LETTER_NAMES, sound_out

PAUSE = "pau"
DICTIONARY = "cmudict.dict.gz"
SYMBOLS = {
    "%": "percent", "&": "and", "+": "plus", "=": "equals", "@": "at", "$": "dollars", "€": "euros", "£": "pounds",
    "#": "number", "°": "degrees",
}  # fmt: skip
ABBREVIATIONS = {
    "mr.": "mister", "mrs.": "missis", "ms.": "miz", "dr.": "doctor", "st.": "saint", "vs.": "versus",
    "etc.": "et cetera", "e.g.": "for example", "i.e.": "that is", "a.m.": "a m", "p.m.": "p m",
}  # fmt: skip
PAUSE_MARKS = ".,;:!?…—()"
MONEY = re.compile(r"([$€£])(\d[\d,]*)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:st|nd|rd|th)?")
TOKEN = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*|[.,;:!?…—()]")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpelledWord:
    """One word as it is written (with the mark that follows) and the phones that say it."""

    text: str
    phones: tuple[str, ...]


def spell(text: str) -> list[SpelledWord]:
    """Spell a line of English; what can't be spoken (other scripts, emoji) is left out.

    A pause stands as a phone at the beginning, at punctuation marks and at the end; a text with nothing to say
    gives an empty list.
    """
    words: list[SpelledWord] = []
    for token in TOKEN.findall(_in_words(text)):
        if token in PAUSE_MARKS:
            if words and words[-1].phones[-1] != PAUSE:
                last = words[-1]
                words[-1] = SpelledWord(text=last.text + token, phones=(*last.phones, PAUSE))
        else:
            words.append(SpelledWord(text=token, phones=tuple(_phones(token))))
    if words:
        first, last = words[0], words[-1]
        words[0] = SpelledWord(text=first.text, phones=(PAUSE, *first.phones))
        last = words[-1]
        if last.phones[-1] != PAUSE:
            words[-1] = SpelledWord(text=last.text, phones=(*last.phones, PAUSE))
    return words


def _in_words(text: str) -> str:
    """Numbers, symbols and abbreviations written out; accents dropped; curly quotes made straight."""
    text = text.replace("’", "'").replace("–", "—")
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    for short, long in ABBREVIATIONS.items():
        text = re.sub(rf"(?<!\w){re.escape(short)}", long + " ", text, flags=re.IGNORECASE)
    text = MONEY.sub(lambda m: f"{m[2]} {SYMBOLS[m[1]]}", text)
    text = NUMBER.sub(lambda m: f" {_number(m[0])} ", text)
    for symbol, word in SYMBOLS.items():
        text = text.replace(symbol, f" {word} ")
    return text


def _number(digits: str) -> str:
    import inflect  # noqa: PLC0415 - half a second that few sessions need

    engine = inflect.engine()
    plain = digits.replace(",", "")
    if len(plain) == 4 and plain.isdigit() and 1100 <= int(plain) < 2000:  # noqa: PLR2004 - a year
        return str(engine.number_to_words(plain, group=2)).replace(",", "").replace("-", " ")
    return str(engine.number_to_words(plain)).replace(",", "").replace("-", " ")


def _phones(word: str) -> list[str]:
    known = _dictionary().get(word.lower())
    if known is None and word.lower().endswith("'s"):
        known = _dictionary().get(word.lower()[:-2])
        known = known and known + " Z"
    if known is not None:
        return [_to_phone(symbol) for symbol in known.split()]
    letters = re.sub("[^a-z]", "", word.lower())
    if word.isupper() and len(word) > 1:
        return [phone for letter in letters for phone in LETTER_NAMES[letter].split()]
    return sound_out(letters)


def _to_phone(symbol: str) -> str:
    """ARPAbet with stress to the voice's phones: only the unstressed AH is another sound."""
    return "ax" if symbol == "AH0" else symbol.rstrip("012").lower()


@functools.cache
def _dictionary() -> dict[str, str]:
    """Word to ARPAbet; of several pronunciations the first."""
    packed = resources.files(__package__).joinpath(DICTIONARY).read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    pairs = (line.split("#")[0].strip().split(" ", 1) for line in lines)
    return {word: phones for word, phones in pairs if not word.endswith(")")}

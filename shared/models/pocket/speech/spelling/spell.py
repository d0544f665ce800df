"""Typed English as words with their phones and the pauses that punctuation asks for."""

import functools
import gzip
import re
import unicodedata
from dataclasses import dataclass
from importlib import resources

from shared.models.pocket.speech.spelling.letters import LETTER_NAMES, sound_out
from shared.models.pocket.speech.spelling.numbers import read_number

PAUSE = "pau"
DICTIONARY = "cmudict.dict.gz"
SYMBOLS = {
    "%": "percent", "&": "and", "+": "plus", "=": "equals", "@": "at", "#": "number", "°": "degrees",
    "$": "dollars", "€": "euros", "£": "pounds",
}  # fmt: skip
COINS = {"$": "cents", "€": "cents", "£": "pence"}
ABBREVIATIONS = {
    "mr.": "mister", "mrs.": "missis", "ms.": "miz", "dr.": "doctor", "st.": "saint", "vs.": "versus",
    "etc.": "et cetera", "e.g.": "for example", "i.e.": "that is",
}  # fmt: skip
PAUSE_MARKS = ".,;:!?…—()"
DIGITS = r"[0-9]+(?:,[0-9]{3})*"
MONEY = re.compile(rf"([$€£])({DIGITS})(?:\.([0-9]+))?(\s+(?:thousand|million|billion|trillion)\b)?")
CLOCK = re.compile(r"\b([0-9]{1,2}):([0-5][0-9])\b")
MINUS = re.compile(r"(?<![\w)])[-−](?=[0-9])")
NUMBER = re.compile(rf"({DIGITS})(?:\.([0-9]+))?(?:(st|nd|rd|th|s)(?![a-z]))?", re.IGNORECASE)
TOKEN = re.compile(r"(?:\b[A-Za-z]\.){2,}|[A-Za-z]+(?:'[A-Za-z]+)*|[.,;:!?…—()]")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpelledWord:
    """One word as it is written (with the mark that follows) and the phones that say it."""

    text: str
    phones: tuple[str, ...]


def spell(text: str) -> list[SpelledWord]:
    """Spell a line of English; what can't be spoken (other scripts, emoji) is left out.

    A pause stands as a phone at the beginning, at punctuation marks and at the end; a text with nothing to
    say gives an empty list.
    """
    words: list[SpelledWord] = []
    for token in TOKEN.findall(written_out(text)):
        if token in PAUSE_MARKS:
            if words and words[-1].phones[-1] != PAUSE:
                last = words[-1]
                words[-1] = SpelledWord(text=last.text + token, phones=(*last.phones, PAUSE))
        else:
            words.append(SpelledWord(text=token, phones=tuple(_phones(token))))
    if words:
        first = words[0]
        words[0] = SpelledWord(text=first.text, phones=(PAUSE, *first.phones))
        last = words[-1]
        if last.phones[-1] != PAUSE:
            words[-1] = SpelledWord(text=last.text, phones=(*last.phones, PAUSE))
    return words


def load_dictionary() -> None:
    """Read the dictionary (0.1 s, 35 MB), so that the first word of a session does not wait for it."""
    _dictionary()


def written_out(text: str) -> str:
    """Numbers, symbols and abbreviations written out; accents dropped; curly quotes made straight."""
    text = text.replace("’", "'").replace("–", "—")
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    for short, long in ABBREVIATIONS.items():
        text = re.sub(rf"(?<!\w){re.escape(short)}", long + " ", text, flags=re.IGNORECASE)
    text = MONEY.sub(_money, text)
    text = CLOCK.sub(_clock, text)
    text = MINUS.sub(" minus ", text)
    text = NUMBER.sub(lambda m: f" {read_number(m[1], m[2] or '', (m[3] or '').lower())} ", text)
    for symbol, word in SYMBOLS.items():
        text = text.replace(symbol, f" {word} ")
    return text


def _money(found: re.Match[str]) -> str:
    """The name of the money goes behind the amount, small change behind that: "five dollars fifty"."""
    sign, whole, fraction, scale = found.groups()
    name = SYMBOLS[sign]
    if scale or (fraction and len(fraction) != 2):
        return f" {whole}{f'.{fraction}' if fraction else ''}{scale or ''} {name} "
    coins = int(fraction or 0)
    if whole == "0" and coins:
        return f" {coins} {COINS[sign]} "
    return f" {whole} {name.removesuffix('s') if whole == '1' else name} {coins or ''} "


def _clock(found: re.Match[str]) -> str:
    hour, minute = int(found[1]), int(found[2])
    if minute == 0:
        return f" {hour} o'clock "
    return f" {hour} {'oh ' if minute < 10 else ''}{minute} "


def _phones(word: str) -> list[str]:
    letters = re.sub("[^a-z]", "", word.lower())
    if word.endswith("."):
        return _letter_by_letter(letters)  # "U.S.A.", "p.m."
    known = _dictionary().get(word.lower())
    if known is None and word.lower().endswith("'s"):
        known = _dictionary().get(word.lower()[:-2])
        known = known and known + " Z"
    if known is not None:
        return [_to_phone(symbol) for symbol in known.split()]
    return _letter_by_letter(letters) if word.isupper() and len(word) > 1 else sound_out(letters)


def _letter_by_letter(letters: str) -> list[str]:
    return [phone for letter in letters for phone in LETTER_NAMES[letter].split()]


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

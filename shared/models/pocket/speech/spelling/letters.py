"""Letters to phones for words that no dictionary has: the longest rule that fits, from left to right."""

RULES = {
    "tion": "sh ax n", "sion": "zh ax n", "ture": "ch er", "ough": "ao", "augh": "ao", "eigh": "ey",
    "igh": "ay", "tch": "ch", "dge": "jh", "sch": "s k", "ing": "ih ng", "all": "ao l", "air": "eh r",
    "ear": "ih r", "eer": "ih r", "our": "aw er", "oor": "ao r", "ch": "ch", "sh": "sh", "th": "th",
    "ph": "f", "wh": "w", "ck": "k", "ng": "ng", "qu": "k w", "kn": "n", "wr": "r", "gh": "g", "gn": "n",
    "mb": "m", "ee": "iy", "ea": "iy", "ai": "ey", "ay": "ey", "oa": "ow", "ow": "ow", "ou": "aw", "oo": "uw",
    "oi": "oy", "oy": "oy", "au": "ao", "aw": "ao", "ew": "y uw", "ie": "iy", "ei": "iy", "ey": "iy",
    "ue": "uw", "ui": "uw", "ar": "aa r", "er": "er", "ir": "er", "or": "ao r", "ur": "er", "ce": "s",
    "ci": "s ih", "cy": "s iy", "ge": "jh", "gi": "jh ih", "bb": "b", "cc": "k", "dd": "d", "ff": "f",
    "gg": "g", "ll": "l", "mm": "m", "nn": "n", "pp": "p", "rr": "r", "ss": "s", "tt": "t", "zz": "z",
    "a": "ae", "b": "b", "c": "k", "d": "d", "e": "eh", "f": "f", "g": "g", "h": "hh", "i": "ih", "j": "jh",
    "k": "k", "l": "l", "m": "m", "n": "n", "o": "aa", "p": "p", "q": "k", "r": "r", "s": "s", "t": "t",
    "u": "ah", "v": "v", "w": "w", "x": "k s", "y": "iy", "z": "z",
}  # fmt: skip
LONG_VOWELS = {"a": "ey", "e": "iy", "i": "ay", "o": "ow", "u": "uw"}
LONGEST = max(map(len, RULES))
VOWELS = "aeiouy"

LETTER_NAMES = {
    "a": "ey", "b": "b iy", "c": "s iy", "d": "d iy", "e": "iy", "f": "eh f", "g": "jh iy", "h": "ey ch",
    "i": "ay", "j": "jh ey", "k": "k ey", "l": "eh l", "m": "eh m", "n": "eh n", "o": "ow", "p": "p iy",
    "q": "k y uw", "r": "aa r", "s": "eh s", "t": "t iy", "u": "y uw", "v": "v iy", "w": "d ah b ax l y uw",
    "x": "eh k s", "y": "w ay", "z": "z iy",
}  # fmt: skip


def sound_out(word: str) -> list[str]:
    """Phones of a lower-case word of letters a to z; a word without a vowel is read letter by letter."""
    if not any(letter in VOWELS for letter in word):
        return [phone for letter in word for phone in LETTER_NAMES[letter].split()]
    phones: list[str] = []
    at = 0
    while at < len(word):
        if _is_long(word, at):
            phones.append(LONG_VOWELS[word[at]])
            at += 1
        elif word[at] == "e" and at == len(word) - 1 and phones:
            at += 1  # a silent e at the end
        else:
            size = next(n for n in range(LONGEST, 0, -1) if word[at : at + n] in RULES)
            phones += RULES[word[at : at + size]].split()
            at += size
    return phones


def _is_long(word: str, at: int) -> bool:
    """A vowel before one consonant and a final e: "made", "time"."""
    return (
        len(word) - at == 3 and word[at] in LONG_VOWELS and word[at + 1] not in VOWELS and word.endswith("e")
    )

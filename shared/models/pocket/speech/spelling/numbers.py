"""English numbers in words."""

from __future__ import annotations

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SCALES = ("", "thousand", "million", "billion", "trillion")
LONGEST = 3 * len(SCALES)  # digits; longer ones are read one by one
IRREGULAR = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip


def cardinal(number: int) -> str:
    """A whole number of at most `LONGEST` digits: "one thousand two hundred and five"."""
    groups = []
    rest = number
    for scale in SCALES:
        rest, group = divmod(rest, 1000)
        if group:
            joined = "and " if not scale and rest and group < 100 else ""
            groups.append(f"{joined}{_below_thousand(group)} {scale}".strip())
    assert not rest, f"{number} has more than {LONGEST} digits"
    return " ".join(reversed(groups)) or ONES[0]


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{ONES[hundreds]} hundred"] if hundreds else []
    if hundreds and rest:
        words.append("and")
    if rest >= 20:
        words.append(TENS[rest // 10])
        rest %= 10
    if rest:
        words.append(ONES[rest])
    return " ".join(words)


def ordinal(number: int) -> str:
    """Its place in a row: "twenty first"."""
    words = cardinal(number).split()
    last = words[-1]
    words[-1] = IRREGULAR.get(last) or (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return " ".join(words)


def year(number: int) -> str:
    """A year of four digits, in pairs: "nineteen oh five", "eighteen hundred", "twenty twenty six"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)  # "two thousand and nine"
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def plural(words: str) -> str:
    """More than one of it: "nineteen nineties"."""
    if words.endswith("y"):
        return f"{words[:-1]}ies"
    return words + ("es" if words.endswith("x") else "s")


def one_by_one(digits: str) -> str:
    """Every digit by itself: "zero zero seven"."""
    return " ".join(ONES[int(digit)] for digit in digits)


def read_number(whole: str, fraction: str = "", suffix: str = "") -> str:
    """A number as it is written, in words.

    Args:
        whole: Digits, with or without commas.
        fraction: Digits after the point, if there is one.
        suffix: "st", "nd", "rd" or "th" of an ordinal, "s" of a plural, or nothing.
    """
    digits = whole.replace(",", "")
    if fraction:
        return f"{_read_whole(digits)} point {one_by_one(fraction)}"
    if len(digits) > LONGEST:
        return one_by_one(digits)
    if suffix in {"st", "nd", "rd", "th"}:
        return ordinal(int(digits))
    words = year(int(digits)) if _is_year(whole) else _read_whole(digits)
    return plural(words) if suffix else words


def _read_whole(digits: str) -> str:
    if len(digits) > LONGEST or (len(digits) > 1 and digits.startswith("0")):
        return one_by_one(digits)
    return cardinal(int(digits))


def _is_year(whole: str) -> bool:
    """Four digits without a comma are taken for a year where people would read them so."""
    return len(whole) == 4 and (1100 <= int(whole) < 2000 or 2010 <= int(whole) < 2100)

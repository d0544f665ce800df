"""English numbers in words."""

from num2words import num2words

LONGEST = 15  # digits; longer ones are read one by one


def in_words(number: int, kind: str = "cardinal") -> str:
    """A whole number as "cardinal", "ordinal" or "year", no marks between the words: "twenty first"."""
    return str(num2words(number, to=kind)).replace(",", "").replace("-", " ")


def plural(words: str) -> str:
    """More than one of it: "nineteen nineties"."""
    if words.endswith("y"):
        return f"{words[:-1]}ies"
    return words + ("es" if words.endswith("x") else "s")


def one_by_one(digits: str) -> str:
    """Every digit by itself: "zero zero seven"."""
    return " ".join(in_words(int(digit)) for digit in digits)


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
        return in_words(int(digits), "ordinal")
    words = in_words(int(digits), "year") if _is_year(whole) else _read_whole(digits)
    return plural(words) if suffix else words


def _read_whole(digits: str) -> str:
    if len(digits) > LONGEST or (len(digits) > 1 and digits.startswith("0")):
        return one_by_one(digits)
    return in_words(int(digits))


def _is_year(whole: str) -> bool:
    """Four digits without a comma are taken for a year where people would read them so."""
    return len(whole) == 4 and (1100 <= int(whole) < 2000 or 2010 <= int(whole) < 2100)

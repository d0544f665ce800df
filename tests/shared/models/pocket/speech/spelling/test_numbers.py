import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.models.pocket.speech.spelling.numbers import (
    LONGEST,
    in_words,
    one_by_one,
    plural,
    read_number,
)

VALUES = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15,
    "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def number_of(words: str) -> int:
    """The way back."""
    total = group = 0
    for word in words.split():
        if word in SCALES:
            total, group = total + group * SCALES[word], 0
        elif word == "hundred":
            group *= 100
        elif word != "and":
            group += VALUES[word]
    return total + group


@given(number=st.integers(0, 10**LONGEST - 1) | st.integers(0, 2000))
def test_a_number_can_be_read_back(number: int) -> None:
    assert number_of(in_words(number)) == number


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (80, "eighty"),
        (105, "one hundred and five"),
        (1_001, "one thousand and one"),
        (1_100, "one thousand one hundred"),
        (2_000_000, "two million"),
        (1_000_017, "one million and seventeen"),
    ],
)
def test_cardinals(number: int, words: str) -> None:
    assert in_words(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "first"), (2, "second"), (8, "eighth"), (12, "twelfth"), (20, "twentieth"), (43, "forty third"),
     (100, "one hundredth"), (0, "zeroth")],
)  # fmt: skip
def test_ordinals(number: int, words: str) -> None:
    assert in_words(number, "ordinal") == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(1066, "ten sixty six"), (1900, "nineteen hundred"), (1901, "nineteen oh one"), (2000, "two thousand"),
     (2009, "two thousand and nine"), (2010, "twenty ten"), (2100, "twenty one hundred")],
)  # fmt: skip
def test_years(number: int, words: str) -> None:
    assert in_words(number, "year") == words


def test_plurals() -> None:
    assert [plural(word) for word in ("ninety", "six", "hundred")] == ["nineties", "sixes", "hundreds"]


def test_what_is_too_long_is_read_digit_by_digit() -> None:
    assert read_number("9" * LONGEST).startswith("nine hundred and ninety nine trillion")
    assert read_number("9" * (LONGEST + 1)) == one_by_one("9" * (LONGEST + 1))
    assert read_number("1" * 40, "5") == f"{one_by_one('1' * 40)} point five"
    assert read_number("0" * 20 + "1", suffix="st") == one_by_one("0" * 20 + "1")

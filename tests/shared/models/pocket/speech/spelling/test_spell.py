import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.models.pocket.speech.phones import PHONE_IDS
from shared.models.pocket.speech.spelling import spell
from shared.models.pocket.speech.spelling.letters import sound_out
from shared.models.pocket.speech.spelling.spell import written_out


def words(text: str) -> str:
    return " ".join(re.sub(r"[^a-zA-Z' ]", "", word.text) for word in spell(text))


def phones(text: str) -> str:
    """Without the pauses at both ends."""
    return (
        " ".join(phone for word in spell(text) for phone in word.phones)
        .removeprefix("pau ")
        .removesuffix(" pau")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7", "seven"),
        ("21 and 342", "twenty one and three hundred and forty two"),
        ("1,234,567", "one million two hundred and thirty four thousand five hundred and sixty seven"),
        ("1000", "one thousand"),
        ("3.14", "three point one four"),
        ("it is -5 outside", "it is minus five outside"),
        ("007", "zero zero seven"),
        ("I have 12, you 3.", "I have twelve you three"),
        ("1st, 2nd, 3rd, 12th, 20th, 101st", "first second third twelfth twentieth one hundred and first"),
        ("in 1905", "in nineteen oh five"),
        ("1999", "nineteen ninety nine"),
        ("1800", "eighteen hundred"),
        ("2007", "two thousand and seven"),
        ("2026", "twenty twenty six"),
        ("the 1990s", "the nineteen nineties"),
        ("2,026", "two thousand and twenty six"),
        ("$5", "five dollars"),
        ("$1", "one dollar"),
        ("$5.50", "five dollars fifty"),
        ("£0.99", "ninety nine pence"),
        ("€1,000", "one thousand euros"),
        ("$2.5 million", "two point five million dollars"),
        ("50%", "fifty percent"),
        ("at 10:30", "at ten thirty"),
        ("9:05", "nine oh five"),
        ("8:00", "eight o'clock"),
        ("you & me + 2", "you and me plus two"),
        ("Dr. Smith vs. Mr. Jones", "doctor Smith versus mister Jones"),
        ("apples, pears, etc.", "apples pears et cetera"),
        ("café, naïve", "cafe naive"),
        ("5stars", "five stars"),
    ],
)
def test_what_is_written_is_said_in_words(text: str, said: str) -> None:
    assert words(text) == said


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("hello", "hh ax l ow"),
        ("XKCD", "eh k s k ey s iy d iy"),
        ("TV", "t iy v iy"),
        ("NASA", "n ae s ax"),  # a word by now: the dictionary has it
        ("U.S.A.", "y uw eh s ey"),
        ("5 p.m.", "f ay v p iy eh m"),
        ("it's", "ih t s"),
        ("Anna's", "ae n ax z"),
        ("o'clock", "ax k l aa k"),
        ("hmm", "hh m"),
        ("A", "ax"),
    ],
)
def test_phones(text: str, spoken: str) -> None:
    assert phones(text) == spoken


@pytest.mark.parametrize(
    ("word", "spoken"),
    [
        ("blade", "b l ey d"),  # a long vowel before a silent e
        ("quigh", "k w ay"),
        ("gration", "g r ae sh ax n"),
        ("brt", "b iy aa r t iy"),  # no vowel: read by letters
        ("e", "eh"),
    ],
)
def test_letters_of_unknown_words(word: str, spoken: str) -> None:
    assert " ".join(sound_out(word)) == spoken


def test_capitals_change_nothing_for_a_known_word() -> None:
    assert phones("HELLO") == phones("Hello") == phones("hello")


def test_curly_quotes_are_apostrophes() -> None:
    assert spell("don’t") == spell("don't")
    assert words("“yes” ‘no’") == "yes no"


@pytest.mark.parametrize(
    "text", ["", " \n\t", "🙂🙃", "привет мир", "你好", "٣٤", "...?!", "'''", "—", "_*~^"]
)
def test_nothing_to_say(text: str) -> None:
    assert spell(text) == []


def test_what_cant_be_said_is_left_out() -> None:
    assert words("hello 🙂 你好 world") == "hello world"


def test_pauses_stand_at_marks_and_at_both_ends() -> None:
    spelled = spell("Yes, no... maybe")
    assert [word.text for word in spelled] == ["Yes,", "no.", "maybe"]
    assert spelled[0].phones[0] == "pau"
    assert [word.phones[-1] for word in spelled] == ["pau", "pau", "pau"]
    assert [sum(phone == "pau" for phone in word.phones) for word in spelled] == [2, 1, 1]


@pytest.mark.parametrize(
    "text", ["a" * 20_000, "1" * 20_000, "1," * 5_000, "ha " * 5_000, "$" * 2_000, "." * 20_000]
)
def test_any_length(text: str) -> None:
    spell(text)


SNIPPETS = st.sampled_from(
    ["$", "€1", "12", ",", ".", "5.5", "st", "th", "s", "'", "’", "-", "−", ":", "00", "p.m.", "Dr.", "etc.",
     "XK", "million", " ", "½", "٣", "ß", "é", "🙂", "10:30", "e.g.", "0", "U.S."]
)  # fmt: skip


@given(text=st.text(max_size=60) | st.lists(SNIPPETS, max_size=12).map("".join))
@settings(deadline=None, max_examples=400)
def test_any_text_gives_known_phones_or_nothing(text: str) -> None:
    spelled = spell(text)
    for word in spelled:
        assert word.text
        assert set(word.phones) <= PHONE_IDS.keys()
        assert set(word.phones) != {"pau"}
    if spelled:
        assert spelled[0].phones[0] == spelled[-1].phones[-1] == "pau"


@given(text=st.text(max_size=60))
@settings(deadline=None)
def test_no_digit_is_left(text: str) -> None:
    assert not re.search("[0-9]", written_out(text))

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.models.wan.language import (
    SLOTS,
    Figure,
    FilmColour,
    Motion,
    Number,
    Place,
    PocketPrompt,
    Size,
    Speed,
    read_prompt,
)


def test_its_own_words_come_back_as_they_were() -> None:
    for values in itertools.product(
        Number, Size, FilmColour, Figure, Motion, (Speed.SLOWLY, Speed.FAST), Place
    ):
        prompt = PocketPrompt(**dict(zip(SLOTS, values, strict=True)))  # type: ignore[arg-type]
        assert read_prompt(prompt.words()) == (prompt, [])


@pytest.mark.parametrize(
    ("text", "plainly"),
    [
        ("two red circles move left over a blue sky", "two red circles move left over a blue sky"),
        (
            "A LARGE Yellow Star spins, fast, over a black night!",
            "a large yellow star spins fast over a black night",
        ),
        ("three fish swim right in the sea", "three red fish move right over a blue sea"),
        ("a tiny violet ball jumps in a meadow", "a small purple circle bounces over a green field"),
        ("stars", "two red stars move right over a blue sky"),
        ("a balloon rises slowly over the sunset", "a red balloon moves up slowly over an orange sunset"),
    ],
)
def test_other_words_for_the_same(text: str, plainly: str) -> None:
    prompt, warnings = read_prompt(text)
    assert prompt.words() == plainly
    assert not warnings


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("a yelow star", "'yelow' taken for 'yellow'"),
        ("a red circle with a hat", "not understood and left out: hat"),
        ("a red circle and a blue square", "not understood and left out: blue, square"),
        ("happiness", "taken for: a red circle moves right over a blue sky"),
    ],
)
def test_whatever_it_does_not_know_is_told(text: str, warning: str) -> None:
    assert warning in read_prompt(text)[1]


@given(st.text(max_size=300))
def test_any_text_gives_a_film(text: str) -> None:
    prompt, _ = read_prompt(text)
    assert prompt.words()

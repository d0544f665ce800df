"""The judge of voices: counting wrong words, and hearing the voice that the agent learns from."""

import pytest

from training.data.voices.agent import speak
from training.evaluation.recogniser import recognise, word_errors, words_of


@pytest.mark.parametrize(
    ("heard", "said", "errors"),
    [
        ("hello there", "Hello, there!", 0),
        ("hello", "Hello there.", 1),  # one left out
        ("oh hello there", "Hello there.", 1),  # one too many
        ("yellow there", "Hello there.", 1),  # one for another
        ("", "Hello there.", 2),
        ("a b c d", "b c d e", 2),  # moved by one: not four
        ("It takes 20 minutes", "It takes twenty minutes.", 0),
    ],
)
def test_word_errors(heard: str, said: str, errors: int) -> None:
    assert word_errors(heard, said) == (errors, len(words_of(said)))


def test_the_original_voice_is_understood() -> None:
    sentence = "I would like to open the green window, please."
    errors, words = word_errors(recognise(speak(sentence).pcm), sentence)
    assert words == 9
    assert errors <= 2

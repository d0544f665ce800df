import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shared.models.pocket.speech.phones import PHONE_IDS, SILENCE
from shared.models.pocket.speech.pointer import (
    MAX_FRAMES,
    MAX_WAITING_CHARACTERS,
    NEIGHBOURS,
    PIECE,
    PhoneTimer,
    SpeechPointer,
    SpeechTokens,
)
from shared.models.pocket.speech.spelling import load_dictionary, spell


class SteadyTimer(PhoneTimer):
    """A phone lasts as many frames as its id tells: nothing is left to chance."""

    @staticmethod
    def frames(phone: int) -> int:
        return 1 + phone % 5

    def forward(self, phones_BW: Tensor) -> Tensor:
        logits = torch.full((len(phones_BW), MAX_FRAMES), -1e4)
        for row, window in enumerate(phones_BW.tolist()):
            logits[row, self.frames(window[NEIGHBOURS]) - 1] = 1e4
        return logits


STEADY = SteadyTimer()


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def phones_of(text: str) -> list[int]:
    """All phones of a line, without the pause that it is spelled with at its beginning."""
    phones = [PHONE_IDS[phone] for word in spell(text) for phone in word.phones]
    return list(itertools.dropwhile(lambda phone: phone == SILENCE, phones))


def speak(speech: SpeechPointer, timer: PhoneTimer = STEADY, limit: int = 2000) -> list[SpeechTokens]:
    """Advance until nothing waits and nothing sounds."""
    draws, units = generator(), list[SpeechTokens]()
    while speech.busy:
        units.append(speech.advance(timer, draws))
        assert len(units) < limit
    return units


def frames_of(units: list[SpeechTokens]) -> list[int]:
    return [phone for unit in units for phone in unit.phones]


LINES = st.lists(
    st.sampled_from(["hello", "bus", "stop", "1905", "XKCD", "a", "eye,", "o'clock", "?"]), max_size=8
)


@given(words=LINES)
@settings(deadline=None, max_examples=40)
def test_no_phone_is_skipped_or_repeated(words: list[str]) -> None:
    text = " ".join(words)
    speech = SpeechPointer()
    assert speech.say(text) is bool(spell(text))
    frames = frames_of(speak(speech))
    expected = [phone for phone in phones_of(text) for _ in range(SteadyTimer.frames(phone))]
    assert frames[: len(expected)] == expected
    assert set(frames[len(expected) :]) <= {SILENCE}  # what is left of the last unit
    assert len(frames) - len(expected) < 4


def test_drawn_lengths_change_the_rhythm_and_not_the_words() -> None:
    text = "please say every phone of this once"
    expected = [phone for phone, _ in itertools.groupby(phones_of(text))]
    heard = []
    for seed in range(3):
        torch.manual_seed(seed)
        speech = SpeechPointer()
        speech.say(text)
        heard.append(frames_of(speak(speech, PhoneTimer())))
        assert [phone for phone, _ in itertools.groupby(heard[-1])] == expected
    assert heard[0] != heard[1]


def test_words_come_one_by_one_each_with_its_first_sound() -> None:
    text = "Hello, my name is Anna."
    speech = SpeechPointer()
    speech.say(text)
    units = speak(speech)
    assert [word for unit in units for word in unit.words] == [word.text for word in spell(text)]
    assert units[0].words == ("Hello,",)  # a pause of one frame, then the first sound
    assert all(unit.speaking for unit in units if unit.words)


def test_lines_wait_for_each_other() -> None:
    speech = SpeechPointer()
    speech.say("one")
    speech.say("two")
    words = [word for unit in speak(speech) for word in unit.words]
    assert words == ["one", "two"]


def test_silence_before_and_after() -> None:
    speech = SpeechPointer()
    quiet = SpeechTokens(phones=(SILENCE,) * 4, words=())
    assert speech.advance(STEADY, generator()) == quiet
    assert not quiet.speaking
    speech.say("yes")
    assert any(unit.speaking for unit in speak(speech))
    assert speech.advance(STEADY, generator()) == quiet


def test_a_stop_silences_at_once_and_for_good() -> None:
    speech = SpeechPointer()
    speech.say("this is a long line that will not be finished")
    while not (units := speech.advance(STEADY, generator())).speaking:
        pass
    assert units.phones[-1] != SILENCE
    speech.stop()
    for _ in range(50):
        units = speech.advance(STEADY, generator())
        assert not units.speaking
        assert not units.words


def test_a_line_after_a_stop_is_said_whole() -> None:
    speech = SpeechPointer()
    speech.say("never mind")
    for _ in range(2):
        speech.advance(STEADY, generator())
    speech.stop()
    speech.say("good bye")
    frames = frames_of(speak(speech))
    assert [p for p, _ in itertools.groupby(frames)] == [
        p for p, _ in itertools.groupby(phones_of("good bye"))
    ]


def test_a_stop_tells_which_typed_lines_were_not_begun() -> None:
    speech = SpeechPointer()
    speech.say("one two three four five six seven eight nine ten " * 6, typed=True)  # begun, in pieces
    speech.say("a  second line", typed=True)
    speech.say("an answer of the agent's own")
    speech.say("a third", typed=True)
    while not speech.advance(STEADY, generator()).speaking:
        pass
    assert speech.stop() == ("a second line", "a third")
    assert speech.stop() == ()


def test_a_line_that_is_spelled_ahead_is_not_begun() -> None:
    speech = SpeechPointer()
    speech.say("hello", typed=True)
    speech.say("a second line", typed=True)
    said = []
    while speech.lines:
        said += speech.advance(STEADY, generator()).words
    assert said == ["hello"], "the second is spelled, and nothing of it was said"
    assert speech.stop() == ("a second line",)


@pytest.mark.parametrize("text", ["ß", "× ÷", "Þ ð", "æ ø", "Ð"])
def test_letters_that_spelling_drops_are_refused(text: str) -> None:
    assert not spell(text)
    assert not SpeechPointer().say(text, typed=True)


@pytest.mark.parametrize("text", ["", "   ", "🙂", "привет", "..."])
def test_nothing_to_say_is_refused(text: str) -> None:
    speech = SpeechPointer()
    assert not speech.say(text)
    assert not speech.busy


def test_too_much_at_once_is_refused_and_taken_later() -> None:
    speech = SpeechPointer()
    lines = 0
    while speech.say("a line of some length to fill the queue with"):
        lines += 1
        assert lines < 1200
    assert (
        MAX_WAITING_CHARACTERS - 100 < sum(len(line.text) for line in speech.lines) <= MAX_WAITING_CHARACTERS
    )
    assert speech.characters == sum(len(line.text) for line in speech.lines)
    speech.stop()
    assert speech.say("now there is room")
    speak(speech)
    assert speech.characters == 0, "what was said takes no room"


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called for some work."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


LONG = {
    "number": "9" * 4000,
    "numbers": "9 " * 2000,
    "unknown words": "xqzvy " * 660,
    "capitals": "WX" * 2000,
    "hyphens": "a-" * 2000,
    "one letter": 3999 * " " + "a",
    "nothing to say": "🙂" * 4000,
    "dashes": "-" * 4000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_line_is_taken_or_refused_without_looking_into_it(text: str) -> None:
    """And a unit then costs what a piece of it does, however long the line is."""
    load_dictionary()
    speech, full = SpeechPointer(), SpeechPointer()
    while full.say("a line to fill the queue with"):
        pass
    for each in (speech, full):
        assert calls_of(lambda each=each: each.say(text)) < 12
    if speech.busy:
        piece = SpeechPointer()
        piece.say(text.strip()[:PIECE])
        of_piece = calls_of(lambda: piece.advance(STEADY, generator()))
        assert calls_of(lambda: speech.advance(STEADY, generator())) < 1.2 * of_piece + 50
        assert len(speech.waiting) <= 10 * PIECE


def test_lines_without_end_are_refused_at_once() -> None:
    speech = SpeechPointer()
    for _ in range(200):
        speech.say("W" * 4000)
    assert speech.characters <= MAX_WAITING_CHARACTERS
    assert calls_of(lambda: [speech.say("9" * 4000) for _ in range(32)]) < 200


def test_a_long_line_is_spelled_piece_by_piece_and_said_whole() -> None:
    words = [f"word {number}" for number in range(300)]
    speech = SpeechPointer()
    assert speech.say(" ".join(words))
    speech.advance(STEADY, generator())
    assert len(speech.waiting) < 2 * PIECE
    said = [word for unit in speak(speech, limit=20_000) for word in unit.words]
    assert said.count("word") in {299, 300}  # the first one may have begun in the unit above


def test_the_same_seed_gives_the_same_rhythm() -> None:
    timer = PhoneTimer()
    units = []
    for _ in range(2):
        speech = SpeechPointer()
        speech.say("say it again, just so")
        units.append(speak(speech, timer))
    assert units[0] == units[1]

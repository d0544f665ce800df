"""Words and silence: that the measures find what they look for where the answer is known."""

from collections import deque

import numpy as np
import pytest
import torch

from shared.models.pocket.speech.phones import SILENCE
from shared.models.pocket.speech.pointer import PhoneTimer
from training.data.split import Split
from training.data.voices.sentences import split_of
from training.evaluation.conversation import ScriptedSpeech
from training.evaluation.speaking import (
    Sentence,
    SpokenTurn,
    judged_sentences,
    silence_levels,
    word_error_rates,
)


def turn(speaking_units: int, silent_units: int) -> SpokenTurn:
    """Nothing is heard in it yet."""
    units = speaking_units + silent_units
    speaking = (True,) * speaking_units + (False,) * silent_units
    return SpokenTurn(pcm=np.zeros((units, 2560), np.float32), speaking=speaking)


def test_silence_is_measured_where_nothing_is_said() -> None:
    idle, after = turn(0, 10), turn(5, 6)
    after.pcm[: after.spoken_units] = 0.5  # speech itself is not counted
    after.pcm[-1] = 0.01
    levels = silence_levels(idle, [after])
    assert levels["silence_before_dbfs"] == -100.0
    assert levels["silence_loudest_unit_dbfs"] == pytest.approx(-40.0, abs=0.01)
    assert -46 < levels["silence_after_dbfs"] < -40


def test_rates_count_words_not_sentences() -> None:
    short = Sentence(said="Hello.", heard="", words=1, errors=1, errors_original=0, errors_codec=0)
    long = Sentence(said="", heard="", words=9, errors=0, errors_original=1, errors_codec=2)
    rates = word_error_rates([short, long])
    assert rates["wer"] == pytest.approx(10)
    assert rates["wer_original"] == pytest.approx(10)
    assert rates["wer_codec"] == pytest.approx(20)
    assert rates["wer_over_original"] == pytest.approx(0)


def test_sentences_are_held_out_and_always_the_same() -> None:
    sentences = judged_sentences(20)
    assert sentences == judged_sentences(85)[:20]
    assert {split_of(sentence) for sentence in sentences} == {Split.JUDGE}
    assert len(set(sentences)) == 20


def test_a_recital_keeps_to_its_script() -> None:
    recital = ScriptedSpeech(script=deque([3, 4, 5, 6, 7]))
    timer, generator = PhoneTimer(), torch.Generator()
    recital.say("hello")
    recital.stop()
    busy = [recital.busy]
    said = []
    for _ in range(3):
        said.append(recital.advance(timer, generator))
        busy.append(recital.busy)
    assert busy == [True, True, False, False]
    assert [slots.phones for slots in said[:2]] == [(3, 4, 5, 6), (7, SILENCE, SILENCE, SILENCE)]
    assert not said[2].speaking

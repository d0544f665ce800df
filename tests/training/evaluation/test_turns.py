"""Times and spans of sessions whose sound is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.evaluation.turns import PARTS, TurnTrial, count_nods, first_sound_s, hushed_s


def heard_at(*spans: tuple[float, float]) -> NDArray[np.bool_]:
    """10 s in which the agent is heard in these seconds."""
    heard = np.zeros(1000, bool)
    for start, end in spans:
        heard[round(start * 100) : round(end * 100)] = True
    return heard


def test_the_first_sound_after_a_question() -> None:
    assert first_sound_s(heard_at((0.1, 0.2), (3.5, 5.0)), 1.0) == pytest.approx(3.5)
    assert np.isnan(first_sound_s(heard_at((0.1, 0.2)), 1.0))


def test_silence_lasts_or_is_none() -> None:
    interruption = (5.0, 7.0)
    assert hushed_s(heard_at((2.0, 5.25)), interruption) == pytest.approx(0.25)
    assert hushed_s(heard_at((2.0, 5.2), (5.5, 5.6)), interruption) == pytest.approx(0.6)  # took breath
    assert hushed_s(heard_at((2.0, 5.2), (5.9, 6.0)), interruption) == pytest.approx(0.2)  # that is an answer
    assert hushed_s(heard_at((2.0, 9.0)), interruption) == pytest.approx(2.0)
    assert hushed_s(heard_at((2.0, 4.9), (7.5, 9.0)), interruption) == 0.0  # the answer is no story
    assert np.isnan(hushed_s(heard_at((2.0, 3.0)), interruption))


def test_nods_are_counted_once() -> None:
    heads = np.zeros(200)
    for start in (20, 90):
        heads[start : start + 8] = [0.3, 0.5, 0.7, 0.39, 0.6, 0.5, 0.3, 0.1]
    assert count_nods(heads) == 2
    assert count_nods(np.zeros(200)) == 0


def turns(kind: str, **measured: float) -> TurnTrial:
    """A session of 10 s."""
    known = {
        "answer_s": np.nan,
        "hush_s": np.nan,
        "user_s": 5.0,
        "over_s": 0.0,
        "babble_s": 0.0,
        "quiet_s": 2.0,
    }
    return TurnTrial(kind=kind, text="", understood=[], nods=3, **(known | measured))


def test_measures_of_sessions() -> None:
    questions = [turns("question", answer_s=0.4), turns("question", answer_s=0.5), turns("question")]
    interruptions = [turns("interruption", hush_s=0.2, over_s=0.5), turns("interruption")]
    talk = turns("talk", babble_s=1.0, quiet_s=10.0)
    findings = PARTS[0].judge([questions, interruptions, [talk]])
    measures = findings.measures
    assert measures["answer_ms_p50"] == pytest.approx(450)
    assert measures["answers_missing"] == pytest.approx(100 / 3)
    assert measures["interruptions"] == 1
    assert measures["hush_ms_p95"] == pytest.approx(200)
    assert measures["talk_over"] == pytest.approx(100 * 0.5 / 30)
    assert measures["babble"] == pytest.approx(3)
    assert measures["nods"] == pytest.approx(18)
    assert findings.cases[2]["answer_s"] is None


def test_nothing_measured_is_nothing() -> None:
    assert np.isnan(PARTS[0].judge([[turns("question")]]).measures["answer_ms_p95"])

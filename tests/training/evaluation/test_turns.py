"""Times and spans of sessions whose sound is known."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.evaluation.parts import FULL, EvaluationConfig, PairTimes, Trial
from training.evaluation.turns import (
    PARTS,
    TurnTrial,
    answered_s,
    count_nods,
    percentile_ms,
    seconds_to_silence,
)


def heard_at(*spans: tuple[float, float]) -> NDArray[np.bool_]:
    """10 s in which the agent is heard in these seconds."""
    heard = np.zeros(1000, bool)
    for start, end in spans:
        heard[round(start * 100) : round(end * 100)] = True
    return heard


QUESTION = ("name", 1.0, 2.0)


@pytest.mark.parametrize(
    ("sounds", "understood", "answer_s"),
    [
        ([(2.4, 4.0)], [(2.24, "name")], 0.4),
        ([(1.5, 1.6), (2.4, 4.0)], [(2.24, "name")], 0.4),  # a sound within the question is no answer to it
        ([(2.4, 4.0)], [(1.92, "name")], 0.4),  # "what is your name, robin"
        ([(1.9, 4.0)], [(1.76, "name")], 0.0),  # time counts from the end
        ([(2.4, 4.0)], [(2.24, "story")], np.inf),  # a wrong answer is none
        ([(2.4, 4.0)], [], np.inf),  # sound without a decision
        ([], [(2.24, "name")], np.inf),
        ([(0.5, 0.9)], [(2.24, "name")], np.inf),
    ],
)
def test_an_answer_is_right_and_counts_from_the_end_of_the_question(
    sounds: list[tuple[float, float]], understood: list[tuple[float, str]], answer_s: float
) -> None:
    assert answered_s(heard_at(*sounds), understood, QUESTION) == pytest.approx(answer_s)


def test_a_percentile_that_lands_on_never_is_never() -> None:
    times = np.array([0.4] * 94 + [np.inf] * 6)
    assert percentile_ms(times, 50) == 400
    assert percentile_ms(times, 94) == 400
    assert percentile_ms(times, 95) == np.inf
    assert np.isnan(percentile_ms(np.array([]), 50))


def test_silence_lasts_or_is_none() -> None:
    interruption = (5.0, 7.0)
    assert seconds_to_silence(heard_at((2.0, 5.25)), interruption) == pytest.approx(0.25)
    assert seconds_to_silence(heard_at((2.0, 5.2), (5.5, 5.6)), interruption) == pytest.approx(
        0.6
    )  # took breath
    assert seconds_to_silence(heard_at((2.0, 5.2), (5.9, 6.0)), interruption) == pytest.approx(
        0.2
    )  # that is an answer
    assert seconds_to_silence(heard_at((2.0, 9.0)), interruption) == np.inf
    assert seconds_to_silence(heard_at((2.0, 4.9), (7.5, 9.0)), interruption) == 0.0  # the answer is no story
    assert np.isnan(seconds_to_silence(heard_at((2.0, 3.0)), interruption))


def test_nods_are_counted_once() -> None:
    heads = np.zeros(200)
    for start in (20, 90):
        heads[start : start + 8] = [0.3, 0.5, 0.7, 0.39, 0.6, 0.5, 0.3, 0.1]
    assert count_nods(heads) == 2
    assert count_nods(np.zeros(200)) == 0


def turns(kind: str, **measured: float) -> TurnTrial:
    """A session of 10 s."""
    known = {
        "answer_s": np.inf if kind == "question" else np.nan,
        "to_silence_s": np.nan,
        "user_s": 5.0,
        "over_s": 0.0,
        "babble_s": 0.0,
        "quiet_s": 2.0,
    }
    return TurnTrial(kind=kind, text="", understood=[], nods=3, **(known | measured))


def judge(*sessions: TurnTrial) -> dict[str, float]:
    pair = PairTimes(p50_ms=30, p99_ms=70)
    config = EvaluationConfig(counts=FULL, seed=0, data=Path(), pair=pair)
    return PARTS[0].judge([Trial(kind=one.kind, result=one) for one in sessions], config)


def test_measures_of_sessions() -> None:
    questions = [turns("question", answer_s=0.4), turns("question", answer_s=0.5), turns("question")]
    interruptions = [turns("interruption", to_silence_s=0.2, over_s=0.5), turns("interruption")]
    talk = turns("talk", babble_s=1.0, quiet_s=10.0)
    measures = judge(*questions, *interruptions, talk)
    assert measures["model_side_ms_p50"] == 30
    assert measures["model_side_ms_p99"] == 70
    assert measures["answer_ms_p50"] == pytest.approx(500)
    assert measures["answer_ms_p95"] == np.inf
    assert measures["answers_missing"] == pytest.approx(100 / 3)
    assert measures["interruptions"] == 1
    assert measures["barge_in_ms_p50"] == pytest.approx(200)
    assert measures["barge_in_ms_p95"] == pytest.approx(240)
    assert measures["talk_over"] == pytest.approx(100 * 0.5 / 30)
    assert measures["babble"] == pytest.approx(3)
    assert measures["nods"] == pytest.approx(18)


def test_a_case_is_json() -> None:
    (case,) = PARTS[0].cases(Trial(kind="question", result=turns("question")))
    assert case["answer_s"] == "never"
    assert case["to_silence_s"] is None


def test_nothing_measured_is_nothing() -> None:
    assert np.isnan(judge(turns("question"))["barge_in_ms_p95"])

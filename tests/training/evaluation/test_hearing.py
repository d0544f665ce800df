"""Requests against what was understood: each once, in time, and nothing else."""

from pathlib import Path

import pytest

from training.evaluation.hearing import PARTS, HearingTrial, RequestTrial, matched
from training.evaluation.parts import FULL, EvaluationConfig, PairTimes, Trial

UNKNOWN = pytest.approx(float("nan"), nan_ok=True)
SPANS = [("hello", 1.0, 1.5), ("name", 4.0, 5.5)]


@pytest.mark.parametrize(
    ("heard", "understood", "rest"),
    [
        ([], ["", ""], 0),
        ([(1.76, "hello"), (5.92, "name")], ["hello", "name"], 0),
        ([(1.76, "goodbye")], ["goodbye", ""], 0),  # wrong
        ([(1.76, "hello"), (2.4, "hello")], ["hello", ""], 1),  # twice
        ([(2.56, "hello")], ["", ""], 1),  # too late to be an answer
        ([(0.5, "hello")], ["", ""], 1),  # before anything was said
        ([(4.8, "name")], ["", "name"], 0),  # "what is your name, robin"
        ([(4.8, "story"), (5.76, "name")], ["", "name"], 1),  # in the middle, and no answer to it
        ([(5.44, "story")], ["", "story"], 0),  # its last word was still sounding
    ],
)
def test_each_request_is_matched_once(
    heard: list[tuple[float, str]], understood: list[str], rest: int
) -> None:
    found, others = matched(heard, SPANS)
    assert ["" if answer is None else answer[1] for answer in found] == understood
    assert len(others) == rest


def test_shares_and_false_starts() -> None:
    right, wrong = (
        RequestTrial(asked="hello", understood="hello"),
        RequestTrial(asked="hello", understood="name"),
    )
    missed, extra = RequestTrial(asked="name", understood=""), RequestTrial(asked="", understood="name")
    trials = [
        Trial(kind=kind, result=HearingTrial(minutes=minutes, cases=cases))
        for kind, minutes, cases in (
            ("espeak", 0.5, [right, right]),
            ("espeak", 0.5, [missed]),
            ("flite", 1.0, [wrong, extra]),
            ("unseen", 1.0, [right, wrong, wrong]),
            ("piper", 1.0, [wrong]),
            ("noise", 4.0, []),
            ("music", 2.0, []),
            ("sentences", 4.0, [extra]),
        )
    ]
    config = EvaluationConfig(counts=FULL, seed=0, data=Path(), pair=PairTimes(p50_ms=0, p99_ms=0))
    assert PARTS[0].judge(trials, config) == {
        "requests": 4, "requests_right": 50, "requests_wrong": 25, "requests_missed": 25,
        "requests_twice": 25, "requests_right_espeak": pytest.approx(200 / 3), "requests_right_flite": 0,
        "requests_right_unseen": pytest.approx(100 / 3), "other_minutes": 10, "false_starts": 0.5,
        "requests_right_festival": UNKNOWN, "requests_right_kokoro": UNKNOWN, "requests_right_piper": 0,
        "false_starts_noise": 0, "false_starts_music": 0, "false_starts_sentences": 1.25,
    }  # fmt: skip
    cases = [case for trial in trials for case in PARTS[0].cases(trial)]
    assert [case["kind"] for case in cases] == [
        "espeak",
        "flite",
        "flite",
        "unseen",
        "unseen",
        "piper",
        "sentences",
    ]

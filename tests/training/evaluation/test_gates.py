"""Gates sit where chance alone hardly ever comes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from training.errors import TrainingError
from training.evaluation.gates import RARE, fallen, gates_file, gates_of, read_gates, write_gates
from training.evaluation.measures import MEASURES, Bounds
from training.evaluation.parts import FULL, EvaluationConfig, EvaluationJob, PairTimes, Part, Trial
from training.evaluation.turns import percentile_ms

ROOT = Path(__file__).parents[3]
PAIR = PairTimes(p50_ms=30, p99_ms=60)
CONFIG = EvaluationConfig(counts=FULL, seed=0, data=Path(), pair=PAIR)


def judge(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
    """Shares of right answers, and times of which some are infinite."""
    del config
    shown = [trial.result for trial in trials if trial.kind == "scene"]
    times = np.array([trial.result for trial in trials if trial.kind == "question"])
    return {
        "colour_right": 100 * float(np.mean(shown)),
        "answer_ms_p50": percentile_ms(times, 50),
        "answer_ms_p95": percentile_ms(times, 95),
    }


def jobs(scenes: int, questions: int) -> list[EvaluationJob]:
    return [
        EvaluationJob(kind="scene", trials=scenes, do=lambda _: []),
        EvaluationJob(kind="question", trials=questions, do=lambda _: []),
    ]


PART = Part(name="part", levels=frozenset({5}), plan=lambda _: [], judge=judge)
TRIALS = [
    *(Trial(kind="scene", result=index % 10 != 0) for index in range(240)),
    *(Trial(kind="question", result=math.inf if index % 10 == 0 else 0.35) for index in range(50)),
]


def test_a_gate_is_the_figure_minus_the_scatter_of_the_short_form() -> None:
    gates = gates_of(PART, TRIALS, jobs(80, 12), CONFIG)
    assert gates == gates_of(PART, TRIALS, jobs(80, 12), CONFIG)
    sigma = 100 * math.sqrt(0.9 * 0.1 / 80)  # of a binomial share
    assert 90 - 3.3 * sigma < gates["colour_right"].low < 90 - 2 * sigma
    assert math.isinf(gates["colour_right"].high)
    assert gates["answer_ms_p50"].high == pytest.approx(350)
    assert "answer_ms_p95" not in gates  # "never" is usual
    wider = gates_of(PART, TRIALS, jobs(20, 12), CONFIG)
    assert wider["colour_right"].low < gates["colour_right"].low


def test_chance_alone_hardly_ever_falls_below_a_gate() -> None:
    gate = gates_of(PART, TRIALS, jobs(80, 12), CONFIG)["colour_right"]
    shares = np.random.default_rng(1).binomial(80, 0.9, 20_000) / 0.8
    assert np.mean([not gate.hold(share) for share in shares]) < 3 * RARE


def test_where_nothing_failed_a_few_failures_are_chance_still() -> None:
    perfect = [Trial(kind=trial.kind, result=trial.result or True) for trial in TRIALS]
    assert 94 < gates_of(PART, perfect, jobs(80, 12), CONFIG)["colour_right"].low < 98


def test_a_gate_is_wider_than_the_few_trials_that_were_seen() -> None:
    def worst(trials: list[Trial], config: EvaluationConfig) -> dict[str, float]:
        del config
        return {"silence_after_dbfs": max(trial.result for trial in trials)}

    part = Part(name="part", levels=frozenset({0}), plan=lambda _: [], judge=worst)
    levels = np.random.default_rng(2).normal(-75, 4, 13)
    trials = [Trial(kind="session", result=float(level)) for level in levels]
    short = [EvaluationJob(kind="session", trials=2, do=lambda _: [])]
    gate = gates_of(part, trials, short, CONFIG)["silence_after_dbfs"]
    assert levels.max() < gate.high < levels.max() + 8


def test_what_fell_is_one_line() -> None:
    gates = {"colour_right": Bounds(low=80), "answer_ms_p50": Bounds(high=400), "psnr": Bounds(low=30)}
    assert list(fallen({"colour_right": 79.0, "answer_ms_p50": math.inf}, gates)) == [
        "level 4: end of a question → first sound of the right answer, p50: never, must be ≤ 400",
        "level 5: knows the colour held up: 79.00 %, must be ≥ 80",
    ]
    assert not list(fallen({"colour_right": 80.0, "answer_ms_p50": 350.0}, gates))


def test_gates_are_read_as_they_are_written(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    gates = {"colour_right": Bounds(low=80), "lip_best_lag_frames": Bounds(low=-1, high=1)}
    write_gates(card, gates, PAIR, {"digest": "abc"})
    assert read_gates(card) == (gates, PAIR)
    assert json.loads(gates_file(card).read_text())["digest"] == "abc"


@pytest.mark.parametrize("content", [None, "", "{}", '{"gates": {"psnr": 3}, "model_side_ms": {}}'])
def test_gates_that_are_not_there_are_said(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        gates_file(tmp_path / "card.md").write_text(content)
    with pytest.raises(TrainingError, match="no gates in"):
        read_gates(tmp_path / "card.md")


def test_every_row_that_the_card_calls_met_is_gated() -> None:
    card = ROOT / "docs" / "pocket-model.md"
    gates, pair = read_gates(card)
    text = card.read_text(encoding="utf-8")
    met = [
        m.name
        for m in MEASURES
        for line in text.splitlines()
        if f"| {m.title} |" in line and "| met |" in line
    ]
    assert len(met) > 10
    assert set(met) <= gates.keys()
    assert 0 < pair.p50_ms <= pair.p99_ms
    for measure in MEASURES:
        if measure.name in gates:
            assert measure.goal is not None

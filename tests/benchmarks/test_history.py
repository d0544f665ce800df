"""`bench history`: the arithmetic, and a whole run of a few units."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import history
from benchmarks.endurance import Course, Stretch
from benchmarks.history import histories, worst_over_neighbours
from scripts.main import main
from shared.config import load_config
from shared.models.family import model_builder


def test_a_unit_is_compared_with_those_around_it() -> None:
    assert worst_over_neighbours([1.0] * 30) == 1.0
    assert worst_over_neighbours([1.0] * 10 + [2.5] + [1.0] * 10) == 2.5
    rising = [1.0 + 0.01 * unit for unit in range(200)]
    assert worst_over_neighbours(rising) < 1.1


def stretch(number: int, **changed: Any) -> Stretch:
    whole = {
        "units": 375 * (number + 1), "hours": (number + 1) / 60, "round_ms": 20.0, "media": True,
        "thinker_mb": 300.0, "performer_mb": 200.0,
    }  # fmt: skip
    return Stretch(**whole | changed)


def test_slope_of_memory_once_warm() -> None:
    growing = [stretch(n, thinker_mb=300.0 + n, performer_mb=0.0 if n < 4 else 200.0) for n in range(60)]
    course = Course(sessions=1, stretches=growing)
    assert course.slope_mb_per_hour(lambda each: each.thinker_mb) == pytest.approx(60.0)
    assert course.slope_mb_per_hour(lambda each: each.performer_mb) == pytest.approx(0.0)


def test_the_fifth_minute_is_compared_with_the_last() -> None:
    course = Course(sessions=1, stretches=[stretch(n) for n in range(60)])
    assert [each.units for each in course.compared] == [5 * 375, 60 * 375]


def test_every_kind_of_history_is_a_model() -> None:
    for config in histories(load_config("tiny")).values():
        model_builder(config.family, config.model)


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SPANS", {"window": 4, "full": 6})
    monkeypatch.setattr(history, "SLIDES", 1)
    monkeypatch.setattr(history, "WHOLE_HOURS", 0.0)
    out = tmp_path / "history.json"
    command = ["bench", "history", "--config", "tiny", "--hours", "0.005", "--sessions", "2"]
    assert main([*command, "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert set(content["ratios"]) >= {"end_over_start", "worst_unit_over_median", "rss_slope_mb_per_hour"}
    assert all(value > 0 for name, value in content["ratios"].items() if "over" in name)
    assert [row["history"] for row in content["rows"] if "history" in row] == [
        "as configured", "window, 4 units", "full, 6 units",
    ]  # fmt: skip
    courses = [row for row in content["rows"] if "hours of media" in row]
    assert courses[-1]["units of each"] == 56
    assert courses[-1]["Performer, MB"] > 0
    assert "one minute in ten" in content["notes"][0]

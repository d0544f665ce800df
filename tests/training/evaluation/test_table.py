"""Verdicts, and the table in the card."""

import math
from pathlib import Path

import pytest

from training.errors import TrainingError
from training.evaluation.levels import PARTS
from training.evaluation.measures import MEASURES, Bounds, at_least, at_most
from training.evaluation.table import BEGIN, END, Row, markdown, rows, write_card

HEAD = "with these weights"
MEASURED = {"wer": 12.34, "psnr": 31.0, "silence_before_dbfs": -42.0, "lip_correlation": 0.913}


def test_rows_are_in_the_order_of_the_levels() -> None:
    found = list(rows(MEASURED))
    assert [row.measure.level for row in found] == [0, 0, 1, 2]
    assert [row.verdict for row in found] == ["met", "missed", "met", ""]
    assert [row.shown for row in found] == ["31 dB", "−42 dBFS", "0.91", "12.3 %"]


def test_what_could_not_be_measured_is_missed() -> None:
    unknown, never = (next(rows({"barge_in_ms_p95": value})) for value in (math.nan, math.inf))
    assert (unknown.shown, unknown.verdict) == ("–", "missed")
    assert (never.shown, never.verdict) == ("never", "missed")


def test_voices_that_are_not_installed_are_said() -> None:
    row = next(rows({"requests_right_piper": math.nan}))
    assert (row.shown, row.verdict) == ("not installed", "")


def test_a_row_says_what_of_it_was_in_training() -> None:
    line = next(line for line in markdown({"requests_right": 90.0}, HEAD).splitlines() if "right" in line)
    assert "right answer to these (in training: the wordings)" in line


@pytest.mark.parametrize(
    ("bounds", "text"),
    [(at_least(0.8), "≥ 0.8"), (at_most(-50), "≤ −50"), (Bounds(low=-1, high=1), "−1 to 1")],
)
def test_bounds_are_read_as_the_goals_are_written(bounds: Bounds, text: str) -> None:
    assert str(bounds) == text


def test_the_card_keeps_all_but_its_table(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"# Card\n\n{BEGIN}\nold\n{END}\n\nLimits.\n", encoding="utf-8")
    for _ in range(2):
        write_card(card, MEASURED, HEAD)
    text = card.read_text(encoding="utf-8")
    assert text == f"# Card\n\n{BEGIN}\n{markdown(MEASURED, HEAD)}\n{END}\n\nLimits.\n"
    assert "| 0 | level before a line is typed | ≤ −50 dBFS | −42 dBFS | missed |" in text


def test_a_card_without_a_place_for_the_table_is_left_alone(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"{END} {BEGIN}", encoding="utf-8")
    with pytest.raises(TrainingError, match="needs the lines"):
        write_card(card, MEASURED, HEAD)
    assert card.read_text(encoding="utf-8") == f"{END} {BEGIN}"
    with pytest.raises(TrainingError, match="nowhere"):
        write_card(tmp_path / "nowhere.md", MEASURED, HEAD)


def test_every_level_has_parts_and_names_are_their_own() -> None:
    assert frozenset().union(*(part.levels for part in PARTS)) == set(range(6))
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert all(Row(measure=measure, value=0.0).shown for measure in MEASURES)

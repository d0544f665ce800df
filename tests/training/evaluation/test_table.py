"""Verdicts, and the table in the card."""

from pathlib import Path

import pytest

from training.errors import TrainingError
from training.evaluation import table
from training.evaluation.levels import PARTS
from training.evaluation.measures import MEASURES, Bounds, Measure, at_least, at_most
from training.evaluation.table import BEGIN, END, Row, fallen, markdown, rows, write_card

MEASURED = {"wer": 12.34, "psnr": 31.0, "silence_before_dbfs": -42.0, "lip_correlation": 0.913}


def test_rows_are_in_the_order_of_the_levels() -> None:
    found = list(rows(MEASURED))
    assert [row.measure.level for row in found] == [0, 0, 1, 2]
    assert [row.verdict for row in found] == ["met", "missed", "met", ""]
    assert [row.shown for row in found] == ["31", "−42", "0.91", "12.3"]


def test_what_could_not_be_measured_is_missed() -> None:
    row = next(rows({"hush_ms_p95": float("nan")}))
    assert (row.shown, row.verdict) == ("–", "missed")


@pytest.mark.parametrize(
    ("bounds", "text"),
    [(at_least(0.8), "≥ 0.8"), (at_most(-50), "≤ −50"), (Bounds(low=-1, high=1), "−1 to 1")],
)
def test_bounds_are_read_as_the_goals_are_written(bounds: Bounds, text: str) -> None:
    assert str(bounds) == text


def test_a_measure_below_its_bar_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Measure(2, "wer", "words wrong", "%", gate=at_most(10))
    free = Measure(0, "psnr", "picture", "dB", goal=at_least(40))  # a missed goal is no fall
    monkeypatch.setattr(table, "MEASURES", (free, bar))
    assert list(fallen({"wer": 12.34, "psnr": 31.0})) == ["level 2: words wrong: 12.34 %, must be ≤ 10"]
    assert not list(fallen({"wer": 9.0, "psnr": 31.0}))


def test_the_card_keeps_all_but_its_table(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"# Card\n\n{BEGIN}\nold\n{END}\n\nLimits.\n", encoding="utf-8")
    for _ in range(2):
        write_card(card, MEASURED)
    text = card.read_text(encoding="utf-8")
    assert text == f"# Card\n\n{BEGIN}\n{markdown(MEASURED)}\n{END}\n\nLimits.\n"
    assert "| 0 | level before a line is typed | ≤ −50 dBFS | −42 dBFS | missed |" in text


def test_a_card_without_a_place_for_the_table_is_left_alone(tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    card.write_text(f"{END} {BEGIN}", encoding="utf-8")
    with pytest.raises(TrainingError, match="needs the lines"):
        write_card(card, MEASURED)
    assert card.read_text(encoding="utf-8") == f"{END} {BEGIN}"
    with pytest.raises(TrainingError, match="nowhere"):
        write_card(tmp_path / "nowhere.md", MEASURED)


def test_every_level_has_parts_and_names_are_their_own() -> None:
    assert frozenset().union(*(part.levels for part in PARTS)) == set(range(6))
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert all(Row(measure=measure, value=0.0).shown for measure in MEASURES)

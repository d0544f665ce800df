"""The command `evaluate`, with a model of random weights: it knows nothing, which every measure must show."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.main import main
from training.evaluation import measures, parts, table
from training.evaluation.measures import MEASURES, Measure, at_most
from training.evaluation.parts import TrialCounts

LEAST = TrialCounts(
    sentences=1, clips=1, voices=("espeak",), guests=(), requests=20, others=10, other_minutes=0.2,
    questions=1, interruptions=1, talks=1, gazes=1, scenes=3, answers=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(parts, "SHORT", LEAST)
    monkeypatch.setattr(parts, "FULL", LEAST)
    yield
    parts.load.cache_clear()


def evaluate(runs: Path, *options: object) -> int:
    return main(["evaluate", "--config", "tiny", "--runs", str(runs), *map(str, options)])


def test_all_levels_are_measured(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, card = tmp_path / "out.json", tmp_path / "card.md"
    card.write_text(f"{table.BEGIN}\n{table.END}\n")
    assert evaluate(runs, "--workers", 1, "--json", out, "--card", card) == 0
    content = json.loads(out.read_text(), parse_constant=lambda _: pytest.fail("no JSON"))
    missing = {measure.name for measure in MEASURES} - content["measures"].keys()
    assert missing == {f"requests_right_{family}" for family in ("flite", "festival", "kokoro", "piper")}
    assert content["measures"]["wer"] > 50
    assert content["verdicts"]["wer_over_original"] == "missed"
    assert content["cases"]["typed speech"][0]["said"]
    assert "video codec, whole picture" in card.read_text()
    assert "missed" in capsys.readouterr().out


def test_workers_measure_the_same(runs: Path, tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.json"
        assert evaluate(runs, "--level", 5, "--workers", workers, "--json", out) == 0
        found.append(json.loads(out.read_text())["measures"])
    assert found[0] == found[1]
    assert {measure.level for measure in MEASURES if measure.name in found[0]} == {5}


def test_a_fall_is_an_error(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = Measure(0, "psnr", "picture", "dB", gate=at_most(1))
    others = [measure for measure in measures.MEASURES if measure.name != "psnr"]
    monkeypatch.setattr(table, "MEASURES", (bar, *others))
    assert evaluate(runs, "--level", 0, "--workers", 1, "--short") == 1
    assert "fell: level 0: picture:" in capsys.readouterr().out
    assert evaluate(runs, "--level", 0, "--workers", 1) == 0  # the full form only reports


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--weights", "nowhere"], 1, "nowhere"),
        (["--device", "gpu"], 2, "must be cpu, cuda:N or xpu:N"),
        (["--config", "nowhere"], 2, "nowhere"),
        (["--json", "/nowhere/o.json"], 2, "can't be written"),
        (["--recording", "nowhere.mp4"], 1, "nowhere.mp4"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    options: list[str], code: int, message: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(runs, *options) == code
    error = capsys.readouterr().err
    assert error.startswith("evaluate: ")
    assert message in error
    assert error.count("\n") == 1

"""The command `evaluate`, with a model of random weights: it knows nothing, which every measure must show."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import evaluate as command
from scripts.main import main
from training.evaluation import parts, table
from training.evaluation.gates import read_gates, write_gates
from training.evaluation.measures import MEASURES, Bounds
from training.evaluation.parts import PairTimes, TrialCounts

LEAST = TrialCounts(
    sentences=1, clips=1, voices=("espeak",), optional_voices=(), requests=20, unseen_requests=20, others=10,
    other_minutes=0.2, questions=1, interruptions=1, talks=1, gazes=1, scenes=3, answers=1,
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
    assert 0 < content["measures"]["model_side_ms_p50"] < content["measures"]["model_side_ms_p99"]
    assert content["in training"]["requests_right"] == "the wordings"
    assert content["measures"]["answer_ms_p95"] == "never"
    assert re.fullmatch(r"[0-9a-f]{16}", content["digest"])
    assert re.fullmatch(r"[0-9a-f]{12}(\+changes)?|unknown", content["commit"])
    assert content["format"] in {"float32", "bfloat16"}
    assert content["seed"] == 0
    assert content["measures"]["wer"] > 50
    assert content["verdicts"]["wer_over_original"] == "missed"
    assert content["cases"]["typed speech"][0]["said"]
    text = card.read_text()
    assert "video codec, whole picture" in text
    for name in ("digest", "commit", "format", "seed"):
        assert str(content[name]) in text.splitlines()[1]
    gates, pair = read_gates(card)
    assert gates.keys() <= {measure.name for measure in MEASURES if measure.goal}
    assert pair.p50_ms == content["measures"]["model_side_ms_p50"]
    assert "missed" in capsys.readouterr().out


def test_workers_measure_the_same(runs: Path, tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.json"
        assert evaluate(runs, "--level", 3, "--workers", workers, "--json", out) == 0
        found.append(json.loads(out.read_text())["measures"])
    assert found[0] == found[1]
    assert {measure.level for measure in MEASURES if measure.name in found[0]} == {3}


def test_a_fall_is_an_error(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CARD", tmp_path / "card.md")
    assert evaluate(runs, "--level", 0, "--workers", 1, "--short") == 1
    assert "no gates in" in capsys.readouterr().err
    for gate, code in ((Bounds(low=99), 1), (Bounds(low=-99), 0)):
        write_gates(command.CARD, {"psnr": gate}, PairTimes(p50_ms=30, p99_ms=60), {})
        assert evaluate(runs, "--level", 0, "--workers", 1, "--short") == code
        assert ("fell: level 0: video codec, whole picture:" in capsys.readouterr().out) == bool(code)


def test_a_commit_is_told_where_there_is_one(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", "-C", tmp_path, *name, *arguments], check=True, capture_output=True)

    assert command.commit(tmp_path) == "unknown"
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    clean = command.commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", clean)
    (tmp_path / "file").write_text("two")
    assert command.commit(tmp_path) == f"{clean}+changes"
    (tmp_path / "folder").mkdir()
    assert command.commit(tmp_path / "folder") == "unknown"  # installed within somebody's repository


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--weights", "nowhere"], 1, "nowhere"),
        (["--device", "gpu"], 2, "must be cpu, cuda:N or xpu:N"),
        (["--config", "nowhere"], 2, "nowhere"),
        (["--json", "/nowhere/o.json"], 2, "can't be written"),
        (["--recording", "nowhere.mp4"], 1, "nowhere.mp4"),
        (["--card", "c.md", "--short"], 2, "--card is for the whole form"),
        (["--card", "nowhere.md"], 1, "--card nowhere.md"),
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

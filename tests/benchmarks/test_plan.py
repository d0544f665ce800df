"""The commands `bench profile` and `bench plan`: what one writes, the other reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.main import main


def bench(*arguments: str, out: Path) -> dict[str, Any]:
    assert main(["bench", *arguments, "--json", str(out)]) == 0
    content: dict[str, Any] = json.loads(out.read_text())
    return content


@pytest.mark.slow
def test_a_plan_is_made_from_a_measured_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    profile = bench("profile", "--config", "tiny", "--units", "4", out=path)
    assert profile["profile"]["model"] == "tiny"
    assert profile["ratios"]["two_processes_over_one"] >= 1
    assert [row["ms"] for row in profile["rows"]][:2] == ["encode", "state"]

    found = bench(
        "plan", "--profile", str(path), "--devices", "3", "--units", "30", out=tmp_path / "plan.json"
    )
    assert {"pair", "T+P+D"} <= {row["layout"] for row in found["rows"]}
    assert found["ratios"]["pair_over_best_one_process"] > 0
    assert len(found["predictions"]) == len(found["rows"])
    assert "highest rate of one session: " in capsys.readouterr().out


def test_a_plan_needs_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "plan", "--devices", "2"]) == 2
    assert "bench plan needs --profile" in capsys.readouterr().err


def test_a_wrong_profile_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"model": "m", "unitms": 160}')
    assert main(["bench", "plan", "--profile", str(path), "--devices", "2"]) == 2
    error = capsys.readouterr().err
    assert "profile.unitms is not a setting" in error
    assert error.count("\n") == 1

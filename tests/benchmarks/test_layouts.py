"""`bench layouts`: what is compared with what, and a whole run of a few units."""

import json
from pathlib import Path

import pytest

from benchmarks import layouts
from benchmarks.layout_workers import Worker, serve_one_process
from benchmarks.layouts import best
from scripts.main import main
from shared.config import RuntimeConfig, load_config
from shared.errors import RuntimeFault


def test_layouts_take_turns_and_the_best_turn_counts() -> None:
    turns: list[str] = []
    rates = {"pair": iter([3.0, 5.0, 4.0]), "one": iter([1.0, 1.0, 2.0])}

    def layout(name: str) -> float:
        turns.append(name)
        return next(rates[name])

    found = best(100, {name: lambda name=name: layout(name) for name in rates})  # type: ignore[misc]
    assert found == {"pair": 5.0, "one": 2.0}
    assert turns == ["pair", "one"] * 3


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "SESSIONS", (2,))
    out = tmp_path / "layouts.json"
    assert main(["bench", "layouts", "--config", "tiny", "--units", "2", "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    named = [row["layout"] for row in content["rows"] if "layout" in row]
    assert named == [
        "pair", "one process, 1 thread", "one process, 2 threads",
        "pair, 1 phase", "pair, 2 phases",
        "two replicas",
    ]  # fmt: skip
    memory = {row["process"]: row["weights that it reads, MB"] for row in content["rows"] if "process" in row}
    assert memory["Performer"] < memory["Thinker"] <= memory["one process"]
    ratios = content["ratios"]
    per_device = (memory["Thinker"] + memory["Performer"]) / 2 / memory["one process"]
    assert ratios["weights_per_device_pair_over_replica"] == pytest.approx(per_device)
    assert ratios["pair_over_best_one_process"] > 0
    assert ratios["pair_over_two_replicas"] == ratios["pair_over_two_replicas_2_sessions"]


@pytest.mark.slow
def test_a_layout_that_ends_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    broken = RuntimeConfig(name="broken", weights="/nowhere", model=load_config("tiny").model)
    worker = Worker(name="lonely", serve=serve_one_process, config=broken)
    with worker, pytest.raises(RuntimeFault, match="'lonely' has ended"):
        worker.await_ready()
    error = capfd.readouterr().err
    assert "/nowhere" in error
    assert error.count("\n") == 1

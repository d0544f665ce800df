"""`train` from nothing to a checkpoint that the runtime loads, with every part a few numbers large."""

import json
import shutil
from pathlib import Path
from typing import Any

import av
import cv2
import pytest
import torch

from scripts.main import main
from shared.config import load_config
from shared.devices import Device
from shared.models.family import model_builder
from training.files import read
from training.parts import PARTS
from training.recipes import PerformerRecipe, load_recipe

SPEECH = "[speech]\nsentences = 10\nheld_out = 2\n"
SCHEDULE = "steps = {steps}\nhorizon = 4\nwarmup = 1\nsave_every = 2\nevaluate_every = 100\n"
BANK = (
    "[bank]\nrequests = 20\nothers = 10\nheld_out_requests = 20\nheld_out_others = 10\n"
    "neural_requests = 0\nneural_others = 0\n"
)
TRACKS = "[tracks]\nsentences = 8\n"
RECIPES = {
    "audio-codec": f"batch = 2\n{SPEECH}[schedule]\n{SCHEDULE}[decoder_schedule]\n{SCHEDULE}",
    "video-codec": f"batch = 2\n{SPEECH}[schedule]\n{SCHEDULE}[decoder_schedule]\n{SCHEDULE}",
    "timing": f"epochs = 1\n{SPEECH}",
    "performer": f"batch = 2\nunits = 4\n{SPEECH}{TRACKS}[schedule]\n{SCHEDULE}",
    "thinker": (
        f"clips = 2\nbatch = 2\npictured = 1\nunits = 8\n{SPEECH}{BANK}"
        f"[eyes_schedule]\n{SCHEDULE}[schedule]\n{SCHEDULE}"
    ),
    "distil": f"batch = 2\nunits = 4\nteacher_steps = 4\n{SPEECH}{TRACKS}[schedule]\n{SCHEDULE}",
}
FOLDERS = ("audio-codec", "audio-decoder", "video-codec", "video-decoder", "performer", "eyes", "thinker")


def write_recipes(folder: Path, *, steps: int) -> Path:
    folder.mkdir()
    for name, text in RECIPES.items():
        (folder / f"{name}.toml").write_text(text.format(steps=steps))
    return folder


def train(part: str, *arguments: object, config: str = "tiny") -> int:
    options = [] if part == "data" else ["--config", config]
    return main(["train", part, *options, *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of everything, unbroken."""
    folder = tmp_path_factory.mktemp("runs")
    recipes = write_recipes(folder / "recipes", steps=4)
    assert train("all", "--scratch", "--runs", folder, "--recipes", recipes, "-o", folder / "packed") == 0
    return folder


def last_losses(folder: Path) -> dict[str, float]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    row: dict[str, float] = next(row for row in reversed(rows) if "s_per_step" in row)
    return {name: value for name, value in row.items() if name != "s_per_step"}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_every_part_leaves_weights_a_log_and_samples(runs: Path) -> None:
    for name in FOLDERS:
        assert {"checkpoint.pt", "final.pt", "log.jsonl"} <= {p.name for p in (runs / name).iterdir()}
        assert last_losses(runs / name)["step"] == 4
    assert (runs / "audio-codec" / "sample-0.wav").exists()
    assert (runs / "video-codec" / "sample.png").exists()
    assert not list(runs.rglob("*.partial"))


def test_the_packed_checkpoint_is_what_the_runtime_loads(runs: Path) -> None:
    config = load_config("tiny")
    family: Any = model_builder(config.family, config.model)(
        weights=runs / "packed", device=Device(dtype="float32")
    )
    trained = read(runs / "performer" / "final.pt")
    trained |= {f"listener.{n}": value for n, value in read(runs / "thinker" / "final.pt").items()}
    for name, value in family.weights.network.state_dict().items():
        assert torch.equal(value, trained[name].bfloat16().float()), name


def test_a_resumed_run_is_the_unbroken_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "data", tmp_path / "data", ignore=shutil.ignore_patterns("tracks*"))
    for steps in (2, 4):
        recipes = write_recipes(tmp_path / f"recipes-{steps}", steps=steps)
        for part in PARTS:
            assert train(part, "--scratch", "--runs", tmp_path, "--recipes", recipes) == 0
    # The towers' second halves saw other latents and glances: codecs and eyes changed in between.
    for name in ("audio-codec", "audio-decoder", "video-codec", "video-decoder", "eyes"):
        assert equal(read(runs / name / "final.pt"), read(tmp_path / name / "final.pt")), name
        assert last_losses(runs / name) == last_losses(tmp_path / name)


@pytest.mark.parametrize("part", ["performer", "thinker"])
def test_a_tower_resumed_is_the_unbroken_one(runs: Path, tmp_path: Path, part: str) -> None:
    for name in ("data", "audio-codec", "video-codec", "eyes"):
        shutil.copytree(runs / name, tmp_path / name)
    for steps in (2, 4):
        recipes = write_recipes(tmp_path / f"recipes-{steps}", steps=steps)
        assert train(part, "--scratch", "--runs", tmp_path, "--recipes", recipes) == 0
    assert equal(read(runs / part / "final.pt"), read(tmp_path / part / "final.pt"))
    assert last_losses(runs / part) == last_losses(tmp_path / part)


def test_what_is_trained_is_not_trained_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("final.pt")}
    for part in PARTS.keys() - {"distil"}:
        assert train(part, "--scratch", "--runs", runs, "--recipes", runs / "recipes") == 0
    assert capsys.readouterr().out.count("already trained") == 8
    assert before == {path: path.stat().st_mtime_ns for path in runs.rglob("final.pt")}


def test_a_part_begins_from_a_checkpoint_folder(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "data", tmp_path / "data")
    recipes = write_recipes(tmp_path / "recipes", steps=1)
    base = runs / "packed"
    assert train("performer", "--from", base, "--runs", tmp_path, "--recipes", recipes) == 0
    assert f"performer: 1 steps on cpu, from {base}" in capsys.readouterr().out
    assert train("pack", "--from", base, "--runs", tmp_path, "-o", tmp_path / "again") == 0
    out = capsys.readouterr().out
    assert "timer              0.06 M parameters from the base checkpoint" in out
    assert f"parameters from {tmp_path / 'performer' / 'final.pt'}" in out


def test_pack_takes_what_is_still_in_training(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "performer", tmp_path / "performer")
    (tmp_path / "performer" / "final.pt").unlink()
    assert train("pack", "--from", runs / "packed", "--runs", tmp_path, "-o", tmp_path / "packed") == 0
    assert "(in training, step 4)" in capsys.readouterr().out


def test_samples_can_be_heard_and_seen(tmp_path: Path) -> None:
    assert train("data", "-n", 1, "-o", tmp_path) == 0
    assert (tmp_path / "clip-0.wav").stat().st_size > 16_000
    sheet = cv2.imread(str(tmp_path / "clip-0.png"))
    assert sheet is not None
    assert sheet.shape[1] == 1280
    with av.open(str(tmp_path / "clip-0.mp4")) as file:
        assert {stream.type for stream in file.streams} == {"video", "audio"}
        assert file.duration is not None
        assert file.duration > 1_000_000


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pack", "--scratch"], 1, "no trained network under"),
        (["performer", "--scratch"], 1, "run `train audio-codec` first, or give --from"),
        (["pack", "--from", "nowhere"], 1, "--from nowhere: there is no model.safetensors in it"),
        (["timing", "--recipes", "nowhere"], 2, "timing.toml is not there"),
        (["timing", "--device", "gpu"], 2, "must be cpu, cuda:N or xpu:N"),
    ],
)
def test_what_is_missing_is_said_in_a_line(
    arguments: list[str], code: int, message: str,
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copytree(runs / "data", tmp_path / "runs" / "data")
    monkeypatch.chdir(tmp_path)
    recipes = write_recipes(tmp_path / "recipes", steps=1)
    if arguments[0] == "performer":
        arguments = [*arguments, "--recipes", str(recipes)]
    assert train(*arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("train: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_machine_without_flite_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train("data", "-o", tmp_path / "samples") == 1
    assert "apt install flite" in capsys.readouterr().err


def test_the_shipped_recipes_are_sound() -> None:
    assert load_recipe(PerformerRecipe, "performer", None).schedule.steps > 1000

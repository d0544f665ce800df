"""The training loop: broken off and resumed it is the unbroken run; Ctrl-C loses nothing."""

import json
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from training.errors import TrainingError
from training.files import read, require_room
from training.loop import CHECKPOINT, LOG, Schedule, TrainConfig, rate_at, train

SCHEDULE = Schedule(steps=60, learning_rate=0.02, warmup=5, save_every=7, evaluate_every=20)


def run(folder: Path, steps: int = 60, *, resume: bool = True, interrupt_at: int = -1) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model = nn.Linear(4, 2)

    def losses(step: int) -> dict[str, Tensor]:
        if step == interrupt_at:
            signal.raise_signal(signal.SIGINT)
        x = torch.randn(8, 4)  # as the noise of a real loss
        return {"fit": (model(x) - x[:, :2]).square().mean(), "small": 0.01 * model.weight.square().sum()}

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        torch.manual_seed(0)
        return {"held_out": model(torch.randn(8, 4)).square().mean().item()}

    config = TrainConfig.of(SCHEDULE, folder, "cpu")
    if steps != config.steps:
        config = TrainConfig(
            folder=folder, steps=steps, horizon=60, learning_rate=0.02, warmup=5, save_every=7
        )
    return train(config, model, losses, evaluate, resume=resume)


def rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / LOG).read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "s_per_step"} for line in lines]


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path) -> None:
    unbroken = run(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", interrupt_at=33)
    assert read(tmp_path / "b" / CHECKPOINT)["step"] == 34  # the step itself was finished
    resumed = run(tmp_path / "b")
    assert unbroken.keys() == resumed.keys()
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_interrupt_handlers_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run(tmp_path, steps=3)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    again = run(tmp_path)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert len(rows(tmp_path)) == 2 + 3


def test_without_resume_it_begins_anew(tmp_path: Path) -> None:
    run(tmp_path, steps=7)
    run(tmp_path, steps=3, resume=False)
    assert read(tmp_path / CHECKPOINT)["step"] == 3


def test_the_rate_follows_the_horizon_not_the_end() -> None:
    whole = Schedule(steps=100, warmup=10)
    early = Schedule(steps=40, horizon=100, warmup=10)
    assert [rate_at(s, early) for s in range(40)] == [rate_at(s, whole) for s in range(40)]
    assert rate_at(0, whole) == pytest.approx(0.1)
    assert rate_at(10, whole) == pytest.approx(1.0)
    assert rate_at(100, whole) == pytest.approx(whole.final_rate)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run(tmp_path, steps=3)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"checkpoint\.pt is damaged"):
        run(tmp_path)


def test_too_little_room_is_said_before_anything_starts(tmp_path: Path) -> None:
    require_room(tmp_path / "not" / "yet" / "there", 1, "a byte")
    with pytest.raises(TrainingError, match=r"samples need 1000000000\.0 GB"):
        require_room(tmp_path / "not" / "yet" / "there", 10**18, "samples")


def test_steps_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Schedule(steps=0)

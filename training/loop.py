"""One training loop for all parts: resumable, logged, bf16 where that is faster, one thread on CPU."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How long and how fast to train, and where checkpoints and logs go."""

    folder: Path
    steps: int
    learning_rate: float = 1e-3
    warmup: int = 100
    final_rate: float = 0.05  # share of the learning rate that is left at the end of the cosine
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.999
    save_every: int = 100
    evaluate_every: int = 500
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"train: steps={self.steps} must be at least 1")


def rate_at(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then a cosine down to `final_rate`, as a share of the learning rate."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    progress = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    return config.final_rate + (1 - config.final_rate) * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    config: TrainConfig,
    model: nn.Module,
    losses: Callable[[int], dict[str, Tensor]],
    evaluate: Callable[[nn.Module, int], dict[str, float]],
    *,
    resume: bool,
) -> dict[str, Tensor]:
    """Minimise the sum of `losses(step)`; return the averaged (EMA) weights.

    Checkpoints are written to a temporary name and renamed, so that a kill never leaves half a file.
    """
    config.folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=config.weight_decay
    )
    average = {k: v.detach().clone().float() for k, v in model.state_dict().items()}
    start = 0
    path = config.folder / CHECKPOINT
    if resume and path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        average, start = saved["average"], saved["step"]
        console.print(f"resumed {path} at step {start}")
    began, seen = time.monotonic(), dict[str, float]()
    for step in range(start, config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate_at(step, config)
        parts = losses(step)
        total = torch.stack(list(parts.values())).sum()
        optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(trained, config.clip)
        if torch.isfinite(norm):
            optimizer.step()
        _update_average(average, model, min(config.ema, (1 + step) / (10 + step)))
        for name, value in parts.items():
            seen[name] = 0.98 * seen.get(name, value.item()) + 0.02 * value.item()
        done = step + 1
        if done % 50 == 0:
            row = {"step": done, "s_per_step": (time.monotonic() - began) / (done - start), **seen}
            _log(config.folder, row, console)
        if done % config.save_every == 0 or done == config.steps:
            _save(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                         "average": average, "step": done})  # fmt: skip
        if done % config.evaluate_every == 0 or done == config.steps:
            live = {k: v.clone() for k, v in model.state_dict().items()}
            model.load_state_dict(average)
            model.eval()
            with torch.no_grad():
                _log(config.folder, {"step": done, **evaluate(model, done)}, console)
            model.train()
            model.load_state_dict(live)
    return average


@torch.no_grad()
def _update_average(average: dict[str, Tensor], model: nn.Module, keep: float) -> None:
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            average[name].lerp_(value.float(), 1 - keep)


def _log(folder: Path, row: dict[str, float], console: Console) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    console.print("  ".join(f"{k} {v:.4g}" for k, v in row.items()))


def _save(path: Path, content: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    torch.save(content, partial)
    os.replace(partial, path)  # noqa: PTH105 - atomic on one file system

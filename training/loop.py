"""One training loop for all parts: resumable to the bit, logged, bf16, one thread on CPU."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from training import files
from training.optimizers import MakeOptimizer, adamw

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
LOG_EVERY = 50
STATES_OF_A_WEIGHT = 4  # itself, its average, two moments of Adam
COPIES = 2  # a checkpoint is written beside the last one before it takes its place


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How long and how fast to train; the `[schedule]` table of a recipe."""

    steps: int
    horizon: int | None = None  # steps that the cosine is laid out for, when training ends before its end
    learning_rate: float = 1e-3
    warmup: int = 100
    final_rate: float = 0.05  # share of the learning rate that is left at the end of the cosine
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.999
    save_every: int = 100
    evaluate_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        least = min(self.steps, self.save_every, self.evaluate_every)
        if least < 1:
            raise ValueError(f"steps, save_every and evaluate_every must be at least 1, one is {least}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig(Schedule):
    """A schedule, where checkpoints and logs go, and what computes."""

    folder: Path
    device: str = "cpu"

    @classmethod
    def of(cls, schedule: Schedule, folder: Path, device: str) -> TrainConfig:
        """Complete a recipe's schedule."""
        return cls(**dataclasses.asdict(schedule), folder=folder, device=device)


def rate_at(step: int, config: Schedule) -> float:
    """Linear warm-up, then a cosine down to `final_rate`, as a share of the learning rate."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    horizon = config.horizon or config.steps
    progress = min(1.0, (step - config.warmup) / max(1, horizon - config.warmup))
    return config.final_rate + (1 - config.final_rate) * 0.5 * (1 + math.cos(math.pi * progress))


def train(
    config: TrainConfig,
    model: nn.Module,
    losses: Callable[[int], dict[str, Tensor]],
    evaluate: Callable[[nn.Module, int], dict[str, float]],
    *,
    resume: bool,
    optimizer: MakeOptimizer = adamw,
) -> dict[str, Tensor]:
    """Minimise the sum of `losses(step)`; return the averaged (EMA) weights.

    Each step draws its noise from a seed of its own, so a resumed run equals an unbroken one.

    Raises:
        TrainingError: the disk has no room for checkpoints.
        KeyboardInterrupt: Ctrl-C or termination, after the step was finished and saved.
    """
    config.folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    progress = Progress(console=console, disable=not console.is_terminal)
    run = _Run(config, model.to(config.device), console, optimizer)
    files.require_room(config.folder, COPIES * STATES_OF_A_WEIGHT * 4 * run.weights, "checkpoints")
    if resume:
        run.load()
    with _stop_asked() as stop, progress:
        bar = progress.add_task(config.folder.name, total=config.steps, completed=run.done)
        while run.done < config.steps:
            run.step(losses)
            progress.update(bar, completed=run.done)
            last = run.done == config.steps
            if last or stop.is_set() or run.done % config.save_every == 0:
                run.save()
            if last or run.done % config.evaluate_every == 0:
                run.evaluate(evaluate)
            if stop.is_set() and not last:
                console.print(f"saved {run.path} at step {run.done}; the same command goes on from there")
                raise KeyboardInterrupt
    return run.average


class _Run:
    """Weights, their average, the optimizer's state, and how many steps are done."""

    def __init__(
        self, config: TrainConfig, model: nn.Module, console: Console, optimizer: MakeOptimizer
    ) -> None:
        self.config, self.model, self.console = config, model, console
        self.path = config.folder / CHECKPOINT
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.weights = sum(p.numel() for p in model.parameters())
        self.optimizer = optimizer(model, config.learning_rate, config.weight_decay)
        self.average = {k: v.detach().clone().float() for k, v in model.state_dict().items()}
        self.done = self.started_at = 0
        self.began = time.monotonic()
        self.seen: dict[str, float] = {}  # running means of the losses

    def load(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        if not self.path.exists():
            return
        saved = files.read(self.path, self.config.device)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.average, self.done = saved["average"], saved["step"]
        self.seen = saved.get("seen", {})
        self.started_at = self.done
        self.console.print(f"resumed {self.path} at step {self.done}")

    def step(self, losses: Callable[[int], dict[str, Tensor]]) -> None:
        """One step of the optimizer."""
        config, step = self.config, self.done
        torch.manual_seed((config.seed + 1) * 7_368_787 + step)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * rate_at(step, config)
        parts = losses(step)
        total = torch.stack(list(parts.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained, config.clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        _update_average(self.average, self.model, min(config.ema, (1 + step) / (10 + step)))
        for name, value in parts.items():
            self.seen[name] = 0.98 * self.seen.get(name, value.item()) + 0.02 * value.item()
        self.done += 1
        if self.done % LOG_EVERY == 0 or self.done == config.steps:
            pace = (time.monotonic() - self.began) / (self.done - self.started_at)
            self.log({"step": self.done, "s_per_step": pace, **self.seen})

    def evaluate(self, evaluate: Callable[[nn.Module, int], dict[str, float]]) -> None:
        """Measure the averaged weights."""
        live = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        self.model.eval()
        with torch.no_grad():
            self.log({"step": self.done, **evaluate(self.model, self.done)})
        self.model.train()
        self.model.load_state_dict(live)

    def save(self) -> None:
        """Write a checkpoint in place of the last one."""
        content = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "average": self.average, "step": self.done, "seen": self.seen,
        }  # fmt: skip
        files.write(self.path, content)

    def log(self, row: dict[str, float]) -> None:
        """To the log file and to the console."""
        with (self.config.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.console.print("  ".join(f"{k} {v:.4g}" for k, v in row.items()))


@contextmanager
def _stop_asked() -> Iterator[threading.Event]:
    """The first Ctrl-C or termination sets the event; the next one acts as if this were not here."""
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        restore()
        asked.set()

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        restore()


@torch.no_grad()
def _update_average(average: dict[str, Tensor], model: nn.Module, keep: float) -> None:
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            average[name].lerp_(value.float(), 1 - keep)

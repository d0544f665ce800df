"""Where the parts are trained: folders, device, what to begin from; and one run of the training loop."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import nn

from shared.checkpoint import config_digest, load_weights
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.network.weights import PocketWeights
from training.data.split import Split
from training.data.voices.agent import AgentUtterance, load_corpus
from training.files import read, write
from training.loop import CHECKPOINT, Schedule, TrainConfig
from training.recipes import SpeechRecipe

FINAL = "final.pt"
HELD_OUT_SEED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainContext:
    """What all parts are trained with: sizes, folders, device."""

    model: PocketConfig
    runs: Path
    recipes: Path | None = None  # folder of TOML files; None: those that ship
    base: Path | None = None  # checkpoint folder that untrained parts begin from; None: random weights
    device: str = "cpu"
    resume: bool = True

    def base_weights(self) -> PocketWeights | None:
        """The checkpoint to begin from; raises CheckpointError where it doesn't fit the model."""
        if self.base is None:
            return None
        weights = PocketWeights(self.model)
        load_weights(weights, self.base, config_digest(self.model))
        return weights.to(self.device)

    def speech(self, recipe: SpeechRecipe) -> tuple[list[AgentUtterance], list[AgentUtterance]]:
        """Sentences to train on and others to measure with; spoken at the first call."""
        folder = self.runs / "data"
        return (
            load_corpus(folder, recipe.sentences, Split.TRAIN),
            load_corpus(folder, recipe.held_out, Split.WATCH, seed=HELD_OUT_SEED),
        )


class RunsContext(Protocol):
    """What a run needs to know of where it is."""

    @property
    def runs(self) -> Path: ...
    @property
    def device(self) -> str: ...
    @property
    def resume(self) -> bool: ...


class TrainRun:
    """One run of the training loop: its folder, whether it is done, where it begins."""

    def __init__(self, context: RunsContext, name: str, schedule: Schedule) -> None:
        self.name = name
        self.config = TrainConfig.of(schedule, context.runs / name, context.device)
        self.final = self.config.folder / FINAL
        self.checkpoint = self.config.folder / CHECKPOINT
        self.resumes = context.resume and self.checkpoint.exists()
        steps = read(self.checkpoint)["step"] if self.resumes else 0
        self.is_done = steps >= schedule.steps and self.final.exists()
        if self.is_done:
            print(f"{name}: already trained, {steps} steps (--no-resume trains it anew)")

    def begin(self, context: TrainContext) -> PocketWeights | None:
        """Return the weights to begin from: None when they are the last run's, or random."""
        self.final.unlink(missing_ok=True)  # no longer the last word
        base = None if self.resumes else context.base_weights()
        origin = "the last run" if self.resumes else "random weights" if base is None else str(context.base)
        print(f"{self.name}: {self.config.steps} steps on {self.config.device}, from {origin}")
        return base

    def forget(self) -> None:
        """Begin anew, whatever there is."""
        self.checkpoint.unlink(missing_ok=True)
        self.final.unlink(missing_ok=True)
        self.resumes = self.is_done = False

    def finish(self, module: nn.Module) -> None:
        """Write the trained weights."""
        write(self.final, module.state_dict())
        print(f"{self.name}: trained, {self.final}")

"""The recipes: one TOML file a part, shipped in `training/configs/` or in a folder of one's own."""

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TypeVar

from shared.errors import ConfigError
from shared.tables import from_table, require_positive
from training.loop import Schedule

RecipeT = TypeVar("RecipeT")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechRecipe:
    """How many sentences are spoken to train on, and how many others to measure with."""

    sentences: int = 4400
    held_out: int = 100

    def __post_init__(self) -> None:
        if self.sentences < 4 or self.held_out < 1:
            raise ValueError(
                f"sentences={self.sentences} must be at least 4, held_out={self.held_out} at least 1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CodecRecipe:
    """`audio-codec.toml` and `video-codec.toml`: the whole codec, then its decoder alone."""

    schedule: Schedule
    decoder_schedule: Schedule
    speech: SpeechRecipe = field(default_factory=SpeechRecipe)
    batch: int = 8
    decoder_batch: int = 8

    def __post_init__(self) -> None:
        require_positive(self, "recipe")


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingRecipe:
    """`timing.toml`."""

    speech: SpeechRecipe = field(default_factory=SpeechRecipe)
    epochs: int = 6

    def __post_init__(self) -> None:
        require_positive(self, "recipe")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackRecipe:
    """How many of the spoken sentences become tracks of latents, and in how many files."""

    sentences: int = 2800
    parts: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "recipe")


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformerRecipe:
    """`performer.toml`."""

    schedule: Schedule
    speech: SpeechRecipe = field(default_factory=SpeechRecipe)
    tracks: TrackRecipe = field(default_factory=TrackRecipe)
    batch: int = 7
    units: int = 32

    def __post_init__(self) -> None:
        if min(self.batch, self.units) < 1:
            raise ValueError(f"batch={self.batch} and units={self.units} must be at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class BankRecipe:
    """How many utterances of users are spoken: requests, and others that ask for nothing.

    Those of neural voices, where they are installed, are so many, and so many copies of each with other vocal
    tracts; none where `neural_requests` is 0.
    """

    requests: int = 6_000
    others: int = 4_000
    neural_requests: int = 480
    neural_others: int = 120
    neural_copies: int = 4
    held_out_requests: int = 1_500
    held_out_others: int = 1_000

    def __post_init__(self) -> None:
        least = min(self.requests, self.others, self.held_out_requests, self.held_out_others)
        if least < 1 or min(self.neural_requests, self.neural_others, self.neural_copies) < 0:
            raise ValueError("bank: the neural numbers must be at least 0, all others at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkerRecipe:
    """`thinker.toml`: the eyes, then the tower that listens."""

    schedule: Schedule
    eyes_schedule: Schedule
    speech: SpeechRecipe = field(default_factory=SpeechRecipe)
    bank: BankRecipe = field(default_factory=BankRecipe)
    clips: int = 64
    batch: int = 16
    pictured: int = 2
    units: int = 48

    def __post_init__(self) -> None:
        require_positive(self, "recipe")


@dataclass(frozen=True, kw_only=True, slots=True)
class DistilRecipe:
    """`distil.toml`."""

    schedule: Schedule
    speech: SpeechRecipe = field(default_factory=SpeechRecipe)
    tracks: TrackRecipe = field(default_factory=TrackRecipe)
    batch: int = 6
    units: int = 32
    solver_steps: int = 2
    teacher_steps: int = 8

    def __post_init__(self) -> None:
        require_positive(self, "recipe")
        if self.teacher_steps % self.solver_steps:
            raise ValueError(
                f"teacher_steps={self.teacher_steps} is not a multiple of solver_steps={self.solver_steps}"
            )


def load_recipe(kind: type[RecipeT], name: str, folder: Path | None) -> RecipeT:
    """Read NAME.toml from `folder`, or the one that ships.

    Raises:
        ConfigError: no such file, not TOML, an unknown key or a bad value; names file and field.
    """
    file = (resources.files("training") / "configs" if folder is None else folder) / f"{name}.toml"
    try:
        return from_table(kind, tomllib.loads(file.read_text(encoding="utf-8")), name)
    except FileNotFoundError:
        raise ConfigError(f"recipe: {file} is not there") from None
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ConfigError(f"recipe {file}: {error}") from None

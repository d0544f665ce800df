"""The recipe of the pocket film model: `training/configs/film.toml`."""

from dataclasses import dataclass

from shared.tables import require_positive
from training.loop import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecipe:
    """How long one stage is trained, and on how many clips a step."""

    schedule: Schedule
    batch: int

    def __post_init__(self) -> None:
        require_positive(self, "recipe")


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmRecipe:
    """All stages in their order; `parts` of so many `films` are drawn for the denoiser."""

    autoencoder: StageRecipe
    decoder: StageRecipe
    denoiser: StageRecipe
    parts: int = 40
    films: int = 256

    def __post_init__(self) -> None:
        require_positive(self, "recipe")

"""The second interface of models: those that make a film from text, block of latents by block of latents.

`Family` is driven by a clock: every unit of the user's asks for one of the agent's. A `FilmFamily` has no
clock and no user: a film is a job, made as fast as its two halves go. The Performer's half turns prompts into
latents, the Thinker's latents into frames; nothing but latents crosses, and each half has a state of its own
for a film. So the two interfaces share no method, and a model keeps to one of them. It registers under the
entry-point group `thinker_performer.film_families`.

A *film* is one or more *scenes*, a scene so many *blocks* of latents, which are numbered through the film.
Every scene begins anew: no latent, key or frame of the scene before is remembered.

Shape suffixes: L latent frames of a block, C H W a latent, F frames.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shared.devices import Device
from shared.errors import ConfigError
from shared.models.family import Role

ENTRY_POINTS = "thinker_performer.film_families"


@dataclass(frozen=True, kw_only=True, slots=True)
class FilmFormat:
    """What films of a model look like."""

    width: int
    height: int
    fps: int
    """At which they are meant to be played."""
    block: int
    """Latent frames of a block."""
    frames_per_latent: int
    """Frames of each latent but a scene's first, which is one frame."""

    def block_frames(self, block_of_scene: int) -> int:
        """Frames that a scene's block stands for."""
        frames = self.block * self.frames_per_latent
        return frames if block_of_scene else frames - self.frames_per_latent + 1

    def blocks(self, frames: int) -> int:
        """Blocks that a scene of so many frames needs; the last may stand for more frames than that."""
        more = max(0, frames - self.block_frames(0))
        return 1 + -(-more // self.block_frames(1))


class FilmFamily(Protocol):
    """One model of films. All methods run on the model thread of the process whose half they are.

    A film's result depends on its prompts and seed alone, and not on what else is being made.
    """

    digest: str
    """Of config, weights and number format: both processes must have the same."""
    format: FilmFormat
    latent_bytes: int
    """Of a block's latents."""

    def read_prompt(self, prompt: str) -> list[str]:
        """What of a prompt is taken for something else, or left out, a sentence each. In either process."""

    def film_bytes(self) -> int:
        """Memory that `allocate` takes for each film."""

    def allocate(self, films: int) -> list[Any]:
        """Performer: states for so many films at a time; all of their memory is allocated here."""

    def begin_scene(self, state: Any, prompt: str, seed: int) -> None:
        """Performer: forget what was made in this state, and make the prompt's from the next block on."""

    def change_prompt(self, state: Any, prompt: str) -> None:
        """Performer: go on with another prompt from the next block on."""

    def denoise(self, state: Any, block: int, stopped: Callable[[], bool]) -> Tensor | None:
        """Performer: a block's clean latents; None, and nothing changed, when `stopped()` says so meanwhile.

        `block` counts through the film; with the scene's seed it decides the noise.
        """

    def remember(self, state: Any, latents: Tensor) -> None:
        """Performer: take the block just denoised into what later blocks look back at."""

    def end_film(self, state: Any) -> None:
        """Performer: forget a film, with nothing of it left in memory."""

    def init_decoder(self) -> Any:
        """Thinker: what the decoder remembers of a scene, at its beginning."""

    def decode(self, state: Any, latents: Tensor) -> NDArray[np.uint8]:
        """Thinker: the scene's next block of latents to frames [F, H, W, 3] in RGB."""


class FilmBuilder(Protocol):
    """Makes the model of a config that has been found good."""

    format: FilmFormat

    def __call__(self, *, weights: Path | None, device: Device, role: Role = Role.BOTH) -> FilmFamily:
        """Build and load; `weights` is a folder, None means random weights of a fixed seed.

        Raises:
            CheckpointError: the weights are missing or don't fit.
        """


class FilmFamilyLoader(Protocol):
    """What an entry point names: reads the `[model]` table of a config."""

    def __call__(self, table: Mapping[str, Any]) -> FilmBuilder:
        """Check the table, without cost; raises ConfigError, which names the field that is wrong."""


def makes_films(family: str) -> bool:
    """Whether a family of this name is installed that makes films."""
    return family in metadata.entry_points(group=ENTRY_POINTS).names


def film_builder(family: str, table: Mapping[str, Any]) -> FilmBuilder:
    """Find `family` among the installed entry points and let it check its table.

    Raises:
        ConfigError: no such family, or a field of the table is wrong.
    """
    found = metadata.entry_points(group=ENTRY_POINTS)
    if family not in found.names:
        raise ConfigError(f"family={family!r} is not installed; there are: {', '.join(sorted(found.names))}")
    loader: FilmFamilyLoader = found[family].load()
    return loader(table)

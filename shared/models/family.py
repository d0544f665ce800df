"""The seam between the process loops and a model: what a family of models must be able to do.

Weights live in the family object, everything that belongs to one session in the state object that is passed
in. A family registers its loader under the entry-point group `thinker_performer.families`, so that another
package can bring its own; the loops know no family by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shared.errors import ConfigError
from shared.media import Media
from shared.models.layout import Block

ENTRY_POINTS = "thinker_performer.families"
StateT = TypeVar("StateT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The user in one unit: sound float32 [N] in [-1, 1], pictures uint8 [frames, H, W, 3], typed lines."""

    pcm: NDArray[np.float32]
    frames: NDArray[np.uint8]
    texts: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a state pass decided: words that begin in this unit, whether anything sounds, lines refused.

    `text` ends with a space where it is not empty, so that the texts of all units joined are what was said.
    `heard` names what the user was understood to ask for in this unit, if anything.
    """

    text: str
    speaking: bool
    refused: tuple[str, ...] = ()
    heard: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Emission:
    """The agent in one unit: sound int16 [N], pictures uint8 [frames, H, W, 3] (RGB)."""

    pcm: NDArray[np.int16]
    frames: NDArray[np.uint8]


class Family(Protocol, Generic[StateT]):
    """One model. All methods run on the model thread; none keeps anything of a session outside `state`."""

    digest: str
    """Of config and weights: both processes must have the same."""
    media: Media
    slice_bytes: int
    """The largest KV slice."""
    latent_bytes: int
    """The latents of one unit."""

    def init_state(self, seed: int) -> StateT:
        """Memory of a new session; all of it is allocated here."""

    def encode(self, state: StateT, user: Observation) -> Tensor:
        """Thinker: the user's unit as tokens."""

    def state_pass(self, state: StateT, unit: int, user: Observation, tokens: Tensor) -> Said:
        """Thinker: write the unit's state block to the cache, text slots included."""

    def remember(self, state: StateT, unit: int, latents: Tensor) -> None:
        """Thinker: write the clean latents of a unit to the cache."""

    def decode(self, state: StateT, latents: Tensor) -> Emission:
        """Thinker: latents of the next unit to sound and picture."""

    def pack(self, state: StateT, block: Block, unit: int, out: Tensor) -> int:
        """Thinker: copy the KV slice of a block to `out`, uint8[slice_bytes]; return its bytes."""

    def append(self, state: StateT, block: Block, unit: int, payload: Tensor) -> None:
        """Performer: take in a slice that `pack` made, uint8[n]."""

    def solve(self, state: StateT, unit: int) -> Tensor:
        """Performer: integrate from noise to the unit's latents, flat float32."""


class Builder(Protocol):
    """Makes the model of a config that has been found good."""

    def __call__(self, *, weights: Path | None, device: str) -> Family[Any]:
        """Build and load; `weights` is a folder, None means random weights of a fixed seed.

        Raises:
            CheckpointError: the weights are missing or don't fit.
        """


class FamilyLoader(Protocol):
    """What an entry point names: reads the `[model]` table of a config."""

    def __call__(self, table: Mapping[str, Any]) -> Builder:
        """Check the table, without cost.

        Raises:
            ConfigError: names the field that is wrong.
        """


def model_builder(name: str, table: Mapping[str, Any]) -> Builder:
    """Find the family `name` among the installed entry points and let it check its table.

    Raises:
        ConfigError: no such family, or a field of the table is wrong.
    """
    found = metadata.entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        installed = ", ".join(sorted(found.names))
        raise ConfigError(f"family={name!r} is not installed; there are: {installed}")
    loader: FamilyLoader = found[name].load()
    return loader(table)

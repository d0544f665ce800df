"""The interface between the process loops and a model: what a family of models must be able to do.

Weights live in the family object, everything that belongs to one session in the state object that is passed
in, its keys and values in a slot of one memory that all sessions share. A family registers its loader under
the entry-point group `thinker_performer.families`, so that another package can bring its own; the loops know
no family by name.

Shape suffixes: B batch (sessions), T tokens, C model dim, N samples, H W picture.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shared.devices import Device
from shared.errors import ConfigError
from shared.media import Media
from shared.models.layout import KVBlock
from shared.models.tensor_parallel import WHOLE, ShardSpec

ENTRY_POINTS = "thinker_performer.families"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UserUnit:
    """The user in one unit: sound float32 [N] in [-1, 1), pictures uint8 [frames, H, W, 3] in RGB, lines.

    Silence and the last picture again (black before the first) where nothing new had arrived. `interrupted`:
    the user cut the agent short since the last unit, before any of `texts`. `epoch` counts all interruptions;
    the agent's answer carries it.
    """

    pcm: NDArray[np.float32]
    frames: NDArray[np.uint8]
    texts: tuple[str, ...] = ()
    interrupted: bool = False
    epoch: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDecision:
    """What a state pass decided: words that begin in this unit, whether anything sounds, lines refused.

    `text` ends with a space where it is not empty, so that the texts of all units joined are what was said.
    `heard` names what the user was understood to ask for in this unit, if anything. `interrupted` are lines
    of the user that the agent had not begun when it was cut short.
    """

    text: str
    speaking: bool
    refused: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    heard: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AgentMedia:
    """The agent in one unit: sound int16 [N], pictures uint8 [frames, H, W, 3] in RGB.

    Whoever gets it may keep both arrays, so a family doesn't write to them again.
    """

    pcm: NDArray[np.int16]
    frames: NDArray[np.uint8]


OnLayer = Callable[[int], None]
"""Called with a layer's number once its keys and values of a block lie in the cache."""


class Family(Protocol):
    """One model. All methods run on the model thread; none keeps anything of a session outside its state.

    Methods that take lists work on a *batch*: each item belongs to another session, at a unit of its own.
    What comes out for a session does not depend on who shares its batch, but for rounding.
    """

    digest: str
    """Of config, weights and number format: both processes must have the same."""
    media: Media
    layers: int
    """A KV slice can be cut between any two of these."""
    latent_bytes: int
    """The latents of one unit."""

    def slice_bytes(self, block: KVBlock) -> int:
        """The KV slice of a block: a multiple of `layers`."""

    def memory_bytes(self) -> int:
        """What `allocate` takes for each session."""

    def allocate(self, sessions: int) -> Any:
        """The keys and values of so many sessions at a time; all of their memory is allocated here."""

    def init_state(self, memory: Any, slot: int, seed: int) -> Any:
        """Begin a session in a free slot of the memory: a new one, or one whose session was ended."""

    def end_state(self, state: Any) -> None:
        """Forget a session: zero its keys, values and whatever else of it lies in the memory of all.

        Its slot is free then, and the state must not be used any more.
        """

    def encode(self, states: Sequence[Any], users: Sequence[UserUnit]) -> Tensor:
        """Thinker: each user's unit as tokens [B, T, C]."""

    def state_pass(
        self,
        states: Sequence[Any],
        units: Sequence[int],
        users: Sequence[UserUnit],
        tokens_BTC: Tensor,
        on_layer: OnLayer | None = None,
    ) -> list[StepDecision]:
        """Thinker: decide what the agent says and does in each unit; write the state block to the cache."""

    def commit(
        self,
        states: Sequence[Any],
        units: Sequence[int],
        latents: Sequence[Tensor],
        on_layer: OnLayer | None = None,
    ) -> None:
        """Thinker: write the clean latents of each unit to the cache."""

    def decode(self, states: Sequence[Any], latents: Sequence[Tensor]) -> list[AgentMedia]:
        """Thinker: latents of each session's next unit to sound and picture."""

    def export_kv(self, state: Any, block: KVBlock, unit: int, out: Tensor, first: int = 0) -> None:
        """Thinker: fill `out`, uint8, with layers of the block's KV slice, from layer `first` on."""

    def import_kv(self, state: Any, block: KVBlock, unit: int, payload: Tensor, first: int = 0) -> None:
        """Performer: take in what `export_kv` made, uint8."""

    def solve(self, states: Sequence[Any], units: Sequence[int]) -> list[Tensor]:
        """Performer: integrate from noise to each unit's latents, flat float32."""


class Role(enum.Enum):
    """What a process does with a model, and so which of its weights it holds."""

    THINKER = "thinker"
    PERFORMER = "performer"
    BOTH = "both"


class Builder(Protocol):
    """Makes the model of a config that has been found good."""

    def __call__(
        self, *, weights: Path | None, device: Device, role: Role = Role.BOTH, share: ShardSpec = WHOLE
    ) -> Family:
        """Build and load; `weights` is a folder, None means random weights of a fixed seed.

        A model for one `role` can't do what the other does. Where ranks share a model, `share` is what this
        one needs for `import_kv` and `solve`. Digest and slices are those of the whole in any case.

        Raises:
            CheckpointError: the weights are missing or don't fit.
        """


class FamilyLoader(Protocol):
    """What an entry point names: reads the `[model]` table of a config."""

    def __call__(self, table: Mapping[str, Any], *, ranks: int = 1) -> Builder:
        """Check the table, without cost.

        Raises:
            ConfigError: names the field that is wrong, or that can't be shared by so many ranks.
        """


def model_builder(name: str, table: Mapping[str, Any], *, ranks: int = 1) -> Builder:
    """Find the family `name` among the installed entry points and let it check its table.

    `ranks` is how many Performer ranks share the model.

    Raises:
        ConfigError: no such family, or a field of the table is wrong.
    """
    found = metadata.entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        installed = ", ".join(sorted(found.names))
        raise ConfigError(f"family={name!r} is not installed; there are: {installed}")
    loader: FamilyLoader = found[name].load()
    return loader(table, ranks=ranks)

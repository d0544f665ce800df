"""The passes of both towers over the cache of all sessions: listen, write a block, solve.

`Passes` launches every kernel; `CapturedPasses` replays recorded graphs, on devices where launching costs
more than computing.

Shape suffixes: B batch (slots of a pass), T tokens of each, C model dim, F latents of a unit.
"""

import enum
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from shared.devices import Device
from shared.devices.graphs import InBuckets
from shared.models.cache import KVCache, Places
from shared.models.family import OnLayer
from shared.models.layout import KVBlock, Tower
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.solver import euler, flow_times
from shared.models.transformer import Attend


class Pass(enum.Enum):
    """What is run: the tower and the block whose tokens it has."""

    LISTEN = (Tower.LISTENING, KVBlock.STATE)
    STATE = (Tower.SPEAKING, KVBlock.STATE)
    COMMIT = (Tower.SPEAKING, KVBlock.COMMIT)
    SOLVE = (Tower.SPEAKING, KVBlock.COMMIT, "noisy")


def notifying(attend: Attend, on_layer: OnLayer) -> Attend:
    """The same `attend`, with a call of `on_layer` once the keys and values of a layer are written."""

    def attend_and_notify(layer: int, *heads_BTHD: Tensor) -> Tensor:
        gathered = attend(layer, *heads_BTHD)
        on_layer(layer)
        return gathered

    return attend_and_notify


class Passes:
    """Weights and cache together. A pass is for some slots, each at a unit of its own."""

    def __init__(self, config: PocketConfig, network: StreamerNetwork, cache: KVCache) -> None:
        self.cache = cache
        self._config = config
        self._network = network
        self._device = cache.kv_L2SNKD.device
        self._times = flow_times(config.solver_steps)
        with torch.inference_mode():
            times = torch.tensor([*self._times[:-1], 0.0], device=self._device)
            *self._noisy_modulations, self._clean_modulation = network.flow_time(times)[:, None, None]

    def run(
        self,
        what: Pass,
        slots: Sequence[int],
        units: Sequence[int],
        x: Tensor,
        on_layer: OnLayer | None = None,
    ) -> Tensor:
        """Run tokens [B, T, C] through a tower, write their keys and values; return its last tokens.

        A solve takes noise [B, F] and returns latents [B, F]; what it writes is looked at by no other pass.
        """
        return self._run(what, x, self._steps(what, units), self._places(what, slots, units), on_layer)

    def _run(
        self, what: Pass, x: Tensor, steps_BT: Tensor, places: Places, on_layer: OnLayer | None
    ) -> Tensor:
        attend = self.cache.attend(places)
        if on_layer is not None:
            attend = notifying(attend, on_layer)
        return self._launch(what, x, steps_BT, attend)

    def _launch(self, what: Pass, x: Tensor, steps_BT: Tensor, attend: Attend) -> Tensor:
        match what:
            case Pass.LISTEN:
                return self._network.listener.run(x, steps_BT, attend)
            case Pass.SOLVE:
                return self._solve(x, steps_BT, attend)
            case _:
                return self._network.run(x, steps_BT, self._clean_modulation, attend)

    def _solve(self, noise_BF: Tensor, steps_BT: Tensor, attend: Attend) -> Tensor:
        network, pictures = self._network, self._config.picture_tokens

        def velocity(x_BF: Tensor, step: int) -> Tensor:
            x_BTC = torch.cat(network.agent_tokens(*self._config.split(x_BF)), dim=1) + network.noisy
            out_BTC = network.run(x_BTC, steps_BT, self._noisy_modulations[step], attend)
            picture, sound = network.velocity_head(out_BTC[:, :pictures], out_BTC[:, pictures:])
            return torch.cat([picture.flatten(1), sound.flatten(1)], dim=1)

        return euler(velocity, noise_BF, self._times)

    def _steps(self, what: Pass, units: Sequence[int]) -> Tensor:
        tower, block, *_ = what.value
        layout = self.cache.layout
        return torch.stack([layout.steps(block, unit, tower) for unit in units]).to(self._device)

    def _places(self, what: Pass, slots: Sequence[int], units: Sequence[int]) -> Places:
        if what is Pass.SOLVE:
            return self.cache.solving(slots, units)
        tower, block, *_ = what.value
        return self.cache.writing(block, slots, units, tower)


class CapturedPasses(Passes):
    """Passes as graphs: one for each size of a batch and length of history, all recorded at the start.

    A slice that travels layer by layer needs its layers one by one, so such a pass is launched after all.
    """

    def __init__(
        self, config: PocketConfig, network: StreamerNetwork, cache: KVCache, device: Device
    ) -> None:
        super().__init__(config, network, cache)
        every = list(range(cache.slots))
        self._graphs: dict[tuple[Pass, int], InBuckets] = {}  # by what is run and how far it looks
        for what in Pass:
            for unit in range(cache.layout.longest):
                units = [unit] * cache.slots
                places = self._places(what, every, units)
                if (what, places.widest.stop) not in self._graphs:
                    whole = self._arguments(self._nothing(what), self._steps(what, units), places)
                    self._graphs[what, places.widest.stop] = device.captured_in(
                        cache.slots, partial(self._recorded, what, places.widest), partial(_first_of, whole)
                    )
        for slot in every:
            cache.clear(slot)

    def _run(
        self, what: Pass, x: Tensor, steps_BT: Tensor, places: Places, on_layer: OnLayer | None
    ) -> Tensor:
        if on_layer is not None:
            return super()._run(what, x, steps_BT, places, on_layer)
        made = self._graphs[what, places.widest.stop](*self._arguments(x, steps_BT, places))
        assert isinstance(made, Tensor)
        return made.clone()  # the next replay overwrites it

    def _arguments(self, x: Tensor, steps_BT: Tensor, places: Places) -> list[Tensor]:
        return [x, steps_BT, torch.tensor(places.slots, device=self._device), places.rows_BT]

    @torch.inference_mode()
    def _recorded(self, what: Pass, visible: slice, *arguments: Tensor) -> Tensor:
        x, steps_BT, slots_B, rows_BT = arguments
        return self._launch(what, x, steps_BT, self.cache.attend_gathered(slots_B, rows_BT, visible))

    def _nothing(self, what: Pass) -> Tensor:
        """What a pass of all slots is given."""
        config, slots = self._config, self.cache.slots
        if what is Pass.SOLVE:
            return torch.zeros(slots, config.latent_numbers, device=self._device)
        tower, block, *_ = what.value
        width = config.listener.dim if what is Pass.LISTEN else config.transformer.dim
        return torch.zeros(slots, self.cache.layout.tokens(block, tower), width, device=self._device)


def _first_of(whole: list[Tensor], size: int) -> list[Tensor]:
    return [each[:size] for each in whole]

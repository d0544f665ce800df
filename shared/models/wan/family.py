"""The Wan family: prompts to latents in the Performer, latents to frames in the Thinker."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shared.checkpoint import config_digest, load_weights
from shared.devices import Device
from shared.errors import ConfigError
from shared.models.family import Role
from shared.models.solver import unit_generator
from shared.models.wan.checkpoints import (
    dit_weights,
    find,
    load_strictly,
    part_of,
    read_weights,
    vae_decoder_weights,
)
from shared.models.wan.config import DecoderKind, Sources, TextKind, WanConfig
from shared.models.wan.decoders import WAN_MEAN, WAN_STD, LatentScale, new_decoder_network, stream_decoder
from shared.models.wan.dit import TextKV, WanDiT
from shared.models.wan.kv_cache import FilmKVCache
from shared.models.wan.language import read_prompt
from shared.models.wan.pocket_text import PocketTextEncoder
from shared.models.wan.schedule import denoise
from shared.models.wan.text import HashedText, PocketText, TextEncoder, Umt5Text
from shared.tables import from_table

RANDOM_WEIGHTS_SEED = 0


class WanWeights(nn.Module):
    """All that is trained of the parts that a role needs."""

    def __init__(self, config: WanConfig, role: Role = Role.BOTH) -> None:
        super().__init__()
        if role is not Role.THINKER:
            self.dit = WanDiT(config.dit)
            if config.text is TextKind.POCKET:
                self.text = PocketTextEncoder(config.dit.text_dim)
        if role is not Role.PERFORMER:
            self.decoder = new_decoder_network(config)
            self.scale = LatentScale(config.dit.latent_channels)


class FilmState:
    """What the Performer holds of one film."""

    def __init__(self, cache: FilmKVCache) -> None:
        self.cache = cache
        self.text: list[TextKV] = []
        self.seed = 0
        self.layout: Tensor | None = None


class WanFamily:
    """One model; see `shared.models.film.FilmFamily`."""

    def __init__(
        self, config: WanConfig, weights: WanWeights, text: TextEncoder | None, *, digest: str, device: Device
    ) -> None:
        self.config = config
        self.format = config.format()
        self.digest = digest
        self.latent_dtype = device.dtype
        self.latent_bytes = int(np.prod(config.block_shape)) * device.dtype.itemsize
        self._device = device
        self._text = text
        if hasattr(weights, "dit"):
            self._dit = device.optimised(weights.dit)
        if hasattr(weights, "decoder"):
            self._decoder = stream_decoder(weights.decoder, weights.scale, device)

    @classmethod
    def load(cls, table: Mapping[str, Any]) -> "WanBuilder":
        """Check a `[model]` table; what is returned builds its model."""
        try:
            return WanBuilder(from_table(WanConfig, table, "model"))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def read_prompt(self, prompt: str) -> list[str]:
        if self._text is not None:
            return self._text.warnings(prompt)
        return read_prompt(prompt)[1] if self.config.text is TextKind.POCKET else []

    def film_bytes(self) -> int:
        return self.config.cache_shape().nbytes(self.config.dit, self._device.dtype)

    def allocate(self, films: int) -> list[FilmState]:
        self._device.require(films * self.film_bytes(), f"the memory of {films} films")
        return [
            FilmState(
                FilmKVCache(
                    self.config.dit,
                    self.config.cache_shape(),
                    dtype=self._device.dtype,
                    device=self._device.torch,
                )
            )
            for _ in range(films)
        ]

    def begin_scene(self, state: FilmState, prompt: str, seed: int) -> None:
        assert self._text is not None
        state.cache.reset()
        state.seed = seed
        state.layout = self._text.layout(prompt, seed)
        self.change_prompt(state, prompt)

    @torch.inference_mode()
    def change_prompt(self, state: FilmState, prompt: str) -> None:
        assert self._text is not None
        state.text = self._dit.text_kv(self._text.encode(prompt).to(self._device.dtype))

    def denoise(self, state: FilmState, block: int, stopped: Callable[[], bool]) -> Tensor | None:
        shape, schedule = self.config.block_shape, self.config.schedule
        in_scene = state.cache.latents // self.config.block

        def noise(step: int) -> Tensor:
            generator = unit_generator(state.seed, block, f"step {step}")
            made = torch.randn(shape, generator=generator)
            if state.layout is not None and in_scene == step == 0:
                made += state.layout
            return made.to(self._device.torch)

        def flow(x: Tensor, timestep: float) -> Tensor:
            return self._run(state, x, timestep)

        clean = denoise(flow, noise, schedule.timesteps(in_scene), schedule.solver, stopped=stopped)
        return None if clean is None else clean.to(self.latent_dtype)

    def remember(self, state: FilmState, latents: Tensor) -> None:
        self._run(state, latents, 0.0)
        state.cache.keep()

    def end_film(self, state: FilmState) -> None:
        state.cache.clear()
        state.text = []
        state.layout = None

    def init_decoder(self) -> Any:
        return self._decoder.new_memory()

    def decode(self, state: Any, latents: Tensor) -> NDArray[np.uint8]:
        on_device = latents.view(self.latent_dtype).view(self.config.block_shape).to(self._device.torch)
        frames = torch.cat([self._decoder.decode(latent, state) for latent in on_device])
        return self._device.fetch(frames).numpy()

    @torch.inference_mode()
    def _run(self, state: FilmState, x: Tensor, timestep: float) -> Tensor:
        """The network over one block, which leaves its keys and values in the cache: flow of x's shape."""
        timesteps = torch.full((1, self.config.block), timestep, device=self._device.torch)
        flow = self._dit(
            x[None].to(self._device.dtype), timesteps, state.text, state.cache.attend,
            first_frame=state.cache.latents,
        )  # fmt: skip
        out: Tensor = flow[0]
        return out


class WanBuilder:
    """Builds models of one config; see `FilmBuilder`."""

    def __init__(self, config: WanConfig) -> None:
        self.config = config
        self.format = config.format()

    def __call__(self, *, weights: Path | None, device: Device, role: Role = Role.BOTH) -> WanFamily:
        config, digest = self.config, config_digest(self.config)
        if config.sources is not None:
            with torch.device("meta"):
                parts = WanWeights(config, role)
            _load_published(parts, config, config.sources, weights)
        else:
            parts = _random_weights(config, role)
            if weights is not None:
                digest = load_weights(parts, weights, digest, whole=False)
        text = None
        if role is not Role.THINKER:
            text = _text_encoder(parts, config, weights, device)
        return WanFamily(config, parts, text, digest=digest, device=device)


def _random_weights(config: WanConfig, role: Role) -> WanWeights:
    """The same numbers for a part, whichever other parts the role needs."""
    weights = WanWeights(config, role)
    with torch.random.fork_rng(devices=[]):
        for part in weights.children():
            torch.manual_seed(RANDOM_WEIGHTS_SEED)
            for name, parameter in part.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                elif parameter.ndim > 1 and not name.endswith("gamma"):  # norms stay as they are made
                    nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return weights


def _load_published(weights: WanWeights, config: WanConfig, sources: Sources, folder: Path | None) -> None:
    """The parts that a role has, from the files that others published."""
    if hasattr(weights, "dit"):
        path = find(sources.dit, folder)
        load_strictly(weights.dit, dit_weights(read_weights(path)), "denoiser", path)
    if hasattr(weights, "decoder"):
        path = find(sources.decoder, folder)
        published = read_weights(path)
        weights.scale = LatentScale(config.dit.latent_channels)
        if config.decoder is DecoderKind.WAN:
            load_strictly(weights.decoder, vae_decoder_weights(published, config.vae), "VAE decoder", path)
            weights.scale.set(torch.tensor(WAN_MEAN), torch.tensor(WAN_STD))
        else:  # trained on latents as they are denoised
            load_strictly(weights.decoder, part_of(published, "decoder."), "TAEHV decoder", path)


def _text_encoder(weights: WanWeights, config: WanConfig, folder: Path | None, device: Device) -> TextEncoder:
    if config.text is TextKind.POCKET:
        network = weights.text.to(device.torch).eval().requires_grad_(False)
        return PocketText(network, config.block_shape[1:])
    if config.sources is None:
        return HashedText(config.dit, device)
    sources = config.sources
    return Umt5Text(find(sources.text, folder), find(sources.tokenizer, folder), config.dit, device)

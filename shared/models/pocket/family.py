"""The family `pocket`: one causal transformer of two towers that listens, looks, speaks and shows a face.

Shape suffixes: B batch (1), T tokens, C model dim, P picture tokens a unit, Z latent dims, N samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from shared.checkpoint import config_digest, load_weights
from shared.errors import ConfigError
from shared.media import Media
from shared.models.audio_codec import AudioCodec, AudioCodecState
from shared.models.cache import KVCache
from shared.models.family import Builder, Emission, Observation, Said
from shared.models.layout import STEPS_PER_UNIT, Block, Tower
from shared.models.pocket.config import FRAMES_PER_UNIT, PHONE_LEAD, PocketConfig
from shared.models.pocket.manners import Manners, Percept
from shared.models.pocket.network import StreamerNetwork
from shared.models.pocket.phones import SILENCE
from shared.models.pocket.speech import PhoneTimer, Speech, TextSlots, duration_draws
from shared.models.pocket.spelling import load_dictionary
from shared.models.solver import euler, flow_times, unit_noise
from shared.models.video_codec import VideoCodec
from shared.tables import from_table

RANDOM_SEED = 20260629
REST_UNITS = 3  # in which a session begins: a face is seen at rest before it speaks
AT_REST = TextSlots(phones=(SILENCE,) * STEPS_PER_UNIT, words=())


def hush_gains(frame: int) -> Tensor:
    """Gains [4 * frame] of a unit in which the agent falls silent, for frames of so many samples.

    The sound fades within a quarter of a frame and is gone for as long as the slots ran ahead.
    """
    gains = torch.ones(STEPS_PER_UNIT * frame)
    gains[: PHONE_LEAD * frame] = 0.0
    gains[: frame // 4] = torch.linspace(1, 0, frame // 4)
    return gains


class PocketWeights(nn.Module):
    """Everything that is trained, as one checkpoint holds it."""

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        self.network = StreamerNetwork(config)
        self.timer = PhoneTimer()
        self.audio = AudioCodec(config.audio)
        self.video = VideoCodec(config.video)


@dataclass(slots=True)
class PocketState:
    """One session. The Performer's replica uses the cache and the seed alone."""

    seed: int
    cache: KVCache
    speech: Speech
    manners: Manners
    ears: AudioCodecState
    sound: AudioCodecState
    picture: Tensor
    decoded: int = 0
    hushed: set[int] = field(default_factory=set)  # units in which the agent fell silent, not decoded yet


class PocketFamily:
    """See `shared.models.family.Family`; this class keeps to that protocol."""

    def __init__(self, config: PocketConfig, weights: PocketWeights, *, digest: str, device: str) -> None:
        self.config = config
        self.digest = digest
        self.device = device
        self.weights = weights.to(device).eval().requires_grad_(False)
        self.layout = config.layout()
        self.media = Media(
            unit_ms=160,
            fps=25,
            frames_per_unit=FRAMES_PER_UNIT,
            sample_rate=config.audio.sample_rate,
            height=config.video.height,
            width=config.video.width,
            input_rate=config.senses.sample_rate,
            input_height=config.senses.height,
            input_width=config.senses.width,
        )
        cache = self._new_cache()
        element = cache.kv_L2KND.element_size()
        self.slice_bytes = element * max(cache.slice_elements(block) for block in Block)
        self._picture_size = config.picture_tokens * config.video.latent_dim
        self._sound_size = STEPS_PER_UNIT * config.audio.latent_dim
        self.latent_bytes = 4 * (self._picture_size + self._sound_size)
        self._hush_N = hush_gains(config.audio.samples_per_latent).to(device)
        self._times = flow_times(config.solver_steps)
        flow_time = self.weights.network.flow_time
        with torch.inference_mode():
            times = torch.tensor([*self._times[:-1], 0.0], device=device)
            *self._solve_modulations, self._clean_modulation = flow_time(times)[:, None, None]

    @classmethod
    def load(cls, table: Mapping[str, Any]) -> Builder:
        """Check a `[model]` table; what is returned builds its model."""
        try:
            config = from_table(PocketConfig, table, "model")
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return partial(cls.build, config)

    @classmethod
    def build(cls, config: PocketConfig, *, weights: Path | None, device: str) -> Self:
        """Make the model; without a folder of `weights` all are random, of a fixed seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(RANDOM_SEED)
            modules = PocketWeights(config)
        load_dictionary()
        digest = config_digest(config)
        if weights is not None:
            digest = load_weights(modules, weights, digest)
        return cls(config, modules, digest=digest, device=device)

    def _new_cache(self) -> KVCache:
        return KVCache(self.layout, self.config.transformer, dtype=torch.float32, device=self.device)

    def init_state(self, seed: int) -> PocketState:
        """Allocate a session."""
        weights = self.weights
        return PocketState(
            seed=seed,
            cache=self._new_cache(),
            speech=Speech(),
            manners=Manners(),
            ears=weights.network.listener.ears.init_state(1),
            sound=weights.audio.decoder.init_state(1),
            picture=weights.video.init_state(1),
        )

    @torch.inference_mode()
    def encode(self, state: PocketState, user: Observation) -> Tensor:
        """What is seen and heard, as tokens [1, T, C]: one glance, then sound."""
        listener = self.weights.network.listener
        pcm_BN = torch.from_numpy(user.pcm).to(self.device)[None]
        frames = torch.from_numpy(user.frames).to(self.device).permute(0, 3, 1, 2)[None].float() / 127.5 - 1
        return torch.cat([listener.eyes(frames), listener.ears(pcm_BN, state.ears)], dim=1)

    @torch.inference_mode()
    def state_pass(self, state: PocketState, unit: int, user: Observation, tokens: Tensor) -> Said:
        """Listen, decide, move the speech pointer by one unit, and write the state block."""
        intent = state.manners.respond(
            self._listen(state, unit, tokens), seed=state.seed, unit=unit, speaking=state.speech.busy
        )
        if user.interrupted or intent.hush:
            state.speech.hush()
            state.hushed.add(unit)
        if intent.line:
            state.speech.say(intent.line)
        refused = tuple(text for text in user.texts if not self._say(state, text))
        slots = AT_REST
        if unit >= REST_UNITS:
            slots = state.speech.advance(self.weights.timer, duration_draws(state.seed, unit))
        network = self.weights.network
        words = torch.tensor([[int(slots.speaking)]], device=self.device)
        phones = torch.tensor([slots.phones], device=self.device)
        gesture_BUG = torch.tensor(intent.gesture, device=self.device).view(1, 1, -1)
        slot_tokens = (*network.text_tokens(words, phones), network.gesture_token(gesture_BUG))
        self._write(state, Block.STATE, unit, torch.cat(slot_tokens, dim=1))
        text = "".join(word + " " for word in slots.words)
        heard = intent.heard.name.lower() if intent.heard else ""
        return Said(text=text, speaking=slots.speaking, refused=refused, heard=heard)

    @staticmethod
    def _say(state: PocketState, text: str) -> bool:
        if not state.speech.say(text):
            return False
        state.manners.typed(text)
        return True

    def _listen(self, state: PocketState, unit: int, tokens: Tensor) -> Percept:
        """Run the listening tower over the user's tokens, and tell what was heard and seen."""
        listener = self.weights.network.listener
        user_BTC = torch.cat(listener.user_tokens(tokens[:, :1], tokens[:, 1:]), dim=1)
        steps_T = self.layout.steps(Block.STATE, unit, Tower.LISTENING).to(self.device)
        out_BTC = listener.run(user_BTC, steps_T, state.cache.writer(Block.STATE, unit, Tower.LISTENING))
        heard, seen = listener.perceive(out_BTC[:, 1:]), listener.eyes.perceive(tokens[:, :1])
        x, y = seen.place[0, 0].tolist()
        return Percept(
            requests=tuple(map(tuple, heard.request[0].softmax(-1).tolist())),
            voice=tuple(heard.voice[0].sigmoid().tolist()),
            present=seen.present[0, 0].sigmoid().item(),
            place=(x, y),
            colours=tuple(seen.colour[0, 0].softmax(-1).tolist()),
        )

    @torch.inference_mode()
    def remember(self, state: PocketState, unit: int, latents: Tensor) -> None:
        """Write the agent's own unit."""
        tokens = self.weights.network.agent_tokens(*self._split(latents))
        self._write(state, Block.REMEMBER, unit, torch.cat(tokens, dim=1))

    @torch.inference_mode()
    def solve(self, state: PocketState, unit: int) -> Tensor:
        """Latents of the unit, flat float32 [P * Z + 4 * Z']."""
        network = self.weights.network
        steps_T = self.layout.steps(Block.REMEMBER, unit).to(self.device)
        attend = state.cache.reader()
        pictures = self.config.picture_tokens

        def velocity(x: Tensor, step: int) -> Tensor:
            x_BTC = torch.cat(network.agent_tokens(*self._split(x)), dim=1) + network.noisy
            out = network.run(x_BTC, steps_T, self._solve_modulations[step], attend)
            picture, sound = network.velocity_head(out[:, :pictures], out[:, pictures:])
            return torch.cat([picture.flatten(), sound.flatten()])

        noise = unit_noise(state.seed, unit, (self._picture_size + self._sound_size,)).to(self.device)
        return euler(velocity, noise, self._times)

    @torch.inference_mode()
    def decode(self, state: PocketState, latents: Tensor) -> Emission:
        """Sound and picture of the next unit; call once per unit, in order.

        The slots run ahead of the sound: what was announced before the agent was hushed is faded out here.
        """
        picture_BPZ, sound_BTZ = self._split(latents)
        pcm_BN = self.weights.audio.decode(sound_BTZ, state.sound)
        z_BTNZ = picture_BPZ.view(1, FRAMES_PER_UNIT, -1, self.config.video.latent_dim)
        frames, state.picture = self.weights.video.decode(z_BTNZ, state.picture)
        pixels = ((frames[0].permute(0, 2, 3, 1) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        if state.decoded in state.hushed:
            state.hushed.remove(state.decoded)
            pcm_BN = pcm_BN * self._hush_N
        state.decoded += 1
        pcm = (pcm_BN[0].clamp(-1, 1) * 32767).round().to(torch.int16)
        return Emission(pcm=np.asarray(pcm.cpu()), frames=np.ascontiguousarray(pixels.cpu()))

    def pack(self, state: PocketState, block: Block, unit: int, out: Tensor) -> int:
        """Copy the block's keys and values to `out`."""
        cache = state.cache
        num_bytes = cache.slice_elements(block) * cache.kv_L2KND.element_size()
        cache.pack(block, unit, out[:num_bytes].view(cache.kv_L2KND.dtype))
        return num_bytes

    def append(self, state: PocketState, block: Block, unit: int, payload: Tensor) -> None:
        """Copy a packed slice to its places."""
        state.cache.append(block, unit, payload.view(state.cache.kv_L2KND.dtype))

    def _write(self, state: PocketState, block: Block, unit: int, x_BTC: Tensor) -> None:
        steps_T = self.layout.steps(block, unit, Tower.SPEAKING).to(self.device)
        attend = state.cache.writer(block, unit, Tower.SPEAKING)
        self.weights.network.run(x_BTC, steps_T, self._clean_modulation, attend)

    def _split(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        picture, sound = torch.split(latents.to(self.device), [self._picture_size, self._sound_size])
        video, audio = self.config.video, self.config.audio
        return picture.view(1, -1, video.latent_dim), sound.view(1, -1, audio.latent_dim)

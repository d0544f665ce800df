"""The family `pocket`: one causal transformer of two towers that listens, looks, speaks and shows a face.

Shape suffixes: B batch (sessions), T tokens, C model dim, P picture tokens a unit, Z latent dims, N samples,
F latents of a unit, U units (1), G numbers of a gesture.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shared.devices import Device
from shared.errors import ConfigError
from shared.media import Media
from shared.models.cache import KVCache
from shared.models.family import AgentMedia, Builder, OnLayer, Role, StepDecision, UserUnit
from shared.models.layout import STEPS_PER_UNIT, KVBlock
from shared.models.pocket.config import FRAMES_PER_UNIT, PHONE_LEAD, PocketConfig
from shared.models.pocket.dialogue.turn_taking import Gesture, UserDetections
from shared.models.pocket.network.passes import CapturedPasses, Pass, Passes
from shared.models.pocket.network.weights import PocketWeights, load_pocket
from shared.models.pocket.speech.phones import SILENCE
from shared.models.pocket.speech.pointer import SpeechTokens
from shared.models.pocket.speech.spelling import load_dictionary
from shared.models.pocket.state import PocketState, Replica, together
from shared.models.solver import unit_generator, unit_noise
from shared.models.tensor_parallel import WHOLE, ShardSpec, part_of
from shared.tables import from_table

REST_UNITS = 3  # in which a session begins: a face is seen at rest before it speaks
UNIT_S = 0.16
SILENT = SpeechTokens(phones=(SILENCE,) * STEPS_PER_UNIT, words=())


def fade_out_gains(frame: int) -> Tensor:
    """Gains [4 * frame] for the sound of a unit in which the agent falls silent, frames of so many samples.

    It fades within a quarter of a frame and is gone for as long as the phone tokens ran ahead.
    """
    gains = torch.ones(STEPS_PER_UNIT * frame)
    gains[: PHONE_LEAD * frame] = 0.0
    gains[: frame // 4] = torch.linspace(1, 0, frame // 4)
    return gains


class PocketFamily:
    """See `shared.models.family.Family`; this class keeps to that protocol."""

    def __init__(
        self,
        config: PocketConfig,
        weights: PocketWeights,
        *,
        digest: str,
        device: Device,
        share: ShardSpec = WHOLE,
    ) -> None:
        self.config = config
        self._share = share
        self.digest = digest
        self.device = device.torch
        self._device = device
        # On a CPU packed layers compute in the device's dtype, and attention is faster in float32.
        self.dtype = torch.float32 if device.kind == "cpu" else device.dtype
        self.weights = weights.to(device.torch).eval().requires_grad_(False)
        self.layout = config.layout()
        self.media = Media(
            unit_ms=round(1000 * UNIT_S),
            fps=25,
            frames_per_unit=FRAMES_PER_UNIT,
            sample_rate=config.audio.sample_rate,
            height=config.video.height,
            width=config.video.width,
            input_rate=config.listener.sample_rate,
            input_height=config.listener.height,
            input_width=config.listener.width,
        )
        self.layers = config.transformer.layers
        self.latent_bytes = 4 * config.latent_numbers
        self._fade_out_N = fade_out_gains(config.audio.samples_per_latent).to(device.torch)

    @classmethod
    def load(cls, table: Mapping[str, Any], *, ranks: int = 1) -> Builder:
        """Check a `[model]` table; what is returned builds its model."""
        try:
            config = from_table(PocketConfig, table, "model")
            part_of(config.transformer, ranks)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return partial(cls.build, config)

    @classmethod
    def build(
        cls,
        config: PocketConfig,
        *,
        weights: Path | None,
        device: Device,
        role: Role = Role.BOTH,
        share: ShardSpec = WHOLE,
    ) -> Self:
        """Make the model; without a folder of `weights` all are random, of a fixed seed."""
        loaded, digest = load_pocket(config, weights, device, role, share)
        if role is not Role.PERFORMER:
            load_dictionary()
        return cls(config, loaded, digest=digest, device=device, share=share)

    def slice_bytes(self, block: KVBlock) -> int:
        numbers = KVCache.slice_numbers(self.layout, self.config.transformer, block)
        return numbers * self.dtype.itemsize

    def memory_bytes(self) -> int:
        part = part_of(self.config.transformer, self._share.ranks)
        return KVCache.bytes_of(self.layout, part, self.dtype)

    def allocate(self, sessions: int) -> Passes:
        self._device.require(sessions * self.memory_bytes(), f"the memory of {sessions} sessions")
        cache = KVCache(
            self.layout, self.config.transformer, slots=sessions, share=self._share, dtype=self.dtype,
            device=self.device,
        )  # fmt: skip
        if self._device.kind == "cpu" or self._share.ranks > 1:  # ranks meet within a pass
            return Passes(self.config, self.weights.network, cache)
        return CapturedPasses(self.config, self.weights.network, cache, self._device)

    def init_state(self, memory: Passes, slot: int, seed: int) -> Any:
        """Begin a session in a slot: a `PocketState`, for a Performer's weights a `Replica`."""
        weights = self.weights
        if not hasattr(weights, "audio"):
            return Replica(seed, memory, slot)
        return PocketState(
            seed,
            memory,
            slot,
            audio_in=weights.network.listener.audio_encoder.init_state(1),
            audio_out=weights.audio.decoder.init_state(1),
            video_out=weights.video.init_state(1),
        )

    @staticmethod
    def end_state(state: Replica) -> None:
        state.cache.clear(state.slot)

    @torch.inference_mode()
    def encode(self, states: Sequence[PocketState], users: Sequence[UserUnit]) -> Tensor:
        """Tokens [B, T, C]: one of the picture, then those of sound."""
        listener = self.weights.network.listener
        pcm_BN = torch.from_numpy(np.stack([user.pcm for user in users])).to(self.device)
        pixels = torch.from_numpy(np.stack([user.frames for user in users])).to(self.device)
        picture_BTC = listener.vision_encoder(pixels.permute(0, 1, 4, 2, 3).float() / 127.5 - 1)
        with together([state.audio_in for state in states]) as stream:
            return torch.cat([picture_BTC, listener.audio_encoder(pcm_BN, stream)], dim=1)

    @torch.inference_mode()
    def state_pass(
        self,
        states: Sequence[PocketState],
        units: Sequence[int],
        users: Sequence[UserUnit],
        tokens_BTC: Tensor,
        on_layer: OnLayer | None = None,
    ) -> list[StepDecision]:
        """Listen, decide, move the speech pointer by one unit, and write the state block."""
        detections = self._detect(states, units, tokens_BTC)
        rows = zip(states, units, users, detections, strict=True)
        decisions, speech, gestures = zip(*(self._decide(*row) for row in rows), strict=True)
        network = self.weights.network
        words_BT = torch.tensor([[int(each.speaking)] for each in speech], device=self.device)
        phones_BT = torch.tensor([each.phones for each in speech], device=self.device)
        gesture_BUG = torch.tensor(gestures, device=self.device).flatten(1)[:, None]
        plan = (*network.text_tokens(words_BT, phones_BT), network.gesture_token(gesture_BUG))
        slots = [state.slot for state in states]
        states[0].passes.run(Pass.STATE, slots, units, torch.cat(plan, dim=1), on_layer)
        return list(decisions)

    def _decide(
        self, state: PocketState, unit: int, user: UserUnit, detected: UserDetections
    ) -> tuple[StepDecision, SpeechTokens, Gesture]:
        turn = state.turn_taking.respond(detected, seed=state.seed, unit=unit, speaking=state.speech.busy)
        lost: tuple[str, ...] = ()
        if user.interrupted or turn.barge_in:
            lost = state.speech.stop()
            state.cut_short.add(unit)
        if turn.line:
            state.speech.say(turn.line)
        refused = tuple(text for text in user.texts if not self._say(state, text))
        speech = SILENT
        if unit >= REST_UNITS:
            draws = unit_generator(state.seed, unit, "durations")
            speech = state.speech.advance(self.weights.timer, draws)
        decision = StepDecision(
            text="".join(word + " " for word in speech.words),
            speaking=speech.speaking,
            refused=refused,
            interrupted=lost,
            heard=turn.heard.name.lower() if turn.heard else "",
        )
        return decision, speech, turn.gesture

    @staticmethod
    def _say(state: PocketState, text: str) -> bool:
        if not state.speech.say(text, typed=True):
            return False
        state.turn_taking.typed(text)
        return True

    def _detect(
        self, states: Sequence[PocketState], units: Sequence[int], tokens_BTC: Tensor
    ) -> list[UserDetections]:
        """Run the listening tower over the users' tokens, and read both heads for each."""
        listener = self.weights.network.listener
        user_BTC = torch.cat(listener.user_tokens(tokens_BTC[:, :1], tokens_BTC[:, 1:]), dim=1)
        out_BTC = states[0].passes.run(Pass.LISTEN, [state.slot for state in states], units, user_BTC)
        speech, scene = listener.detect(out_BTC[:, 1:]), listener.vision_encoder.detect(tokens_BTC[:, :1])
        rows = zip(
            speech.request.softmax(-1).tolist(),
            speech.voice.sigmoid().tolist(),
            scene.present[:, 0].sigmoid().tolist(),
            scene.place[:, 0].tolist(),
            scene.colour[:, 0].softmax(-1).tolist(),
            strict=True,
        )
        return [
            UserDetections(
                requests=tuple(map(tuple, requests)), voice=tuple(voice), present=present, place=(x, y),
                colours=tuple(colours),
            )
            for requests, voice, present, (x, y), colours in rows
        ]  # fmt: skip

    @torch.inference_mode()
    def commit(
        self,
        states: Sequence[PocketState],
        units: Sequence[int],
        latents: Sequence[Tensor],
        on_layer: OnLayer | None = None,
    ) -> None:
        latents_BF = torch.stack(list(latents)).to(self.device)
        tokens = self.weights.network.agent_tokens(*self.config.split(latents_BF))
        slots = [state.slot for state in states]
        states[0].passes.run(Pass.COMMIT, slots, units, torch.cat(tokens, dim=1), on_layer)

    @torch.inference_mode()
    def solve(self, states: Sequence[Replica], units: Sequence[int]) -> list[Tensor]:
        """Latents of each session's unit, flat float32 [F]: picture, then sound."""
        size = (self.config.latent_numbers,)
        rows = zip(states, units, strict=True)
        noise_BF = torch.stack([unit_noise(state.seed, unit, size) for state, unit in rows])
        slots = [state.slot for state in states]
        return list(states[0].passes.run(Pass.SOLVE, slots, units, noise_BF.to(self.device)))

    @torch.inference_mode()
    def decode(self, states: Sequence[PocketState], latents: Sequence[Tensor]) -> list[AgentMedia]:
        picture_BPZ, sound_BTZ = self.config.split(torch.stack(list(latents)).to(self.device))
        with together([state.audio_out for state in states]) as stream:
            pcm_BN = self.weights.audio.decode(sound_BTZ, stream)
        batch = len(states)
        z_BTNZ = picture_BPZ.reshape(batch, FRAMES_PER_UNIT, -1, self.config.video.latent_dim)
        past = torch.cat([state.video_out for state in states])
        frames, past = self.weights.video.decode(z_BTNZ, past)
        pixels = ((frames.permute(0, 1, 3, 4, 2) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        shown, made = self._device.fetch(pixels), []
        for row, state in enumerate(states):
            state.video_out = past[row : row + 1]
            pcm = (self._faded_out(state, pcm_BN[row]).clamp(-1, 1) * 32767).round().to(torch.int16)
            made.append(AgentMedia(pcm=pcm.cpu().numpy(), frames=shown[row].numpy().copy()))
        return made

    def _faded_out(self, state: PocketState, pcm_N: Tensor) -> Tensor:
        """Fade out a unit that was cut short: phone tokens run ahead of the sound, which would go on."""
        unit = state.decoded
        state.decoded += 1
        if unit not in state.cut_short:
            return pcm_N
        state.cut_short.remove(unit)
        return pcm_N * self._fade_out_N

    def export_kv(self, state: Replica, block: KVBlock, unit: int, out: Tensor, first: int = 0) -> None:
        state.cache.export_kv(block, state.slot, unit, out.view(self.dtype), first)

    def import_kv(self, state: Replica, block: KVBlock, unit: int, payload: Tensor, first: int = 0) -> None:
        state.cache.import_kv(block, state.slot, unit, payload.view(self.dtype), first)

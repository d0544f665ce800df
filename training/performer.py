"""Train the transformer as the Performer uses it: the velocity of the next unit's picture and sound.

Clean and noisy copies of all units stand in one sequence; a mask shows every token exactly what the runtime's
cache would show it at that moment, rings and spans included.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.layout import STEPS_PER_UNIT, Block
from shared.models.pocket.config import PocketConfig, Token
from shared.models.pocket.network import StreamerNetwork
from shared.models.transformer import Attend
from training.errors import TrainingError
from training.loop import TrainConfig, train
from training.tracks import Track

NOISY = 2  # beside Block.STATE and Block.REMEMBER
AGENT = (Token.AGENT_PICTURE, Token.AGENT_SOUND)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """The order of tokens in a training sequence: the kept ones unit by unit, then the noisy ones likewise.

    Nothing but its own unit's noisy tokens ever sees a noisy token, so the mask is over the R kept tokens.
    """

    units: int
    steps_T: Tensor
    mask_TR: Tensor
    places: dict[tuple[Token, int], Tensor]  # (stream, Block or NOISY) -> [units, tokens] indices

    def to(self, device: str) -> Sequence:
        """A copy on a device."""
        places = {key: place.to(device) for key, place in self.places.items()}
        return dataclasses.replace(
            self, steps_T=self.steps_T.to(device), mask_TR=self.mask_TR.to(device), places=places
        )


def lay_sequence(config: PocketConfig, units: int, streams: tuple[Token, ...]) -> Sequence:
    """Build the sequence of `units` units with only the given streams in it."""
    layout = config.layout()
    stream_of, unit_of, part_of, step_of = [], [], [], []
    kept = [(unit, part) for unit in range(units) for part in (Block.STATE, Block.REMEMBER)]
    for unit, part in kept + [(unit, NOISY) for unit in range(units)]:
        for token in streams:
            stream = layout.streams[token]
            if stream.block == (Block.REMEMBER if part == NOISY else part):
                for offset in stream.offsets:
                    stream_of.append(int(token))
                    unit_of.append(unit)
                    part_of.append(int(part))
                    step_of.append(unit * STEPS_PER_UNIT + offset)
    stream_T, unit_T, part_T = (torch.tensor(x) for x in (stream_of, unit_of, part_of))
    span_T = torch.tensor([layout.streams[s].span for s in stream_of])
    # The newest unit of each kind of stream that a query's pass has in the cache.
    newest_agent = torch.where(part_T == Block.REMEMBER, unit_T, unit_T - 1)
    kept_R = torch.nonzero(part_T != NOISY).flatten()
    agent_key_R = part_T[kept_R] == Block.REMEMBER
    newest = torch.where(agent_key_R[None, :], newest_agent[:, None], unit_T[:, None])
    age = newest - unit_T[kept_R][None, :]
    mask_TR = (age >= 0) & (age < span_T[kept_R][None, :])
    places = {
        (token, part): torch.nonzero((stream_T == token) & (part_T == part)).view(units, -1)
        for token in streams
        for part in ((Block.REMEMBER, NOISY) if token in AGENT else (Block.STATE,))
    }
    return Sequence(units=units, steps_T=torch.tensor(step_of), mask_TR=mask_TR, places=places)


def masked(sequence: Sequence) -> Attend:
    """An `attend` among the tokens of one sequence, for as many key heads as query heads.

    Written out, since the fused kernel's backward pass is slower here and can't leave out the noisy keys.
    """
    units, kept = sequence.units, sequence.mask_TR.shape[1]
    blocked_TR = ~sequence.mask_TR
    bias_TR = torch.zeros_like(blocked_TR, dtype=torch.float32).masked_fill(blocked_TR, float("-inf"))

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        del layer
        q = q * q.shape[-1] ** -0.5
        bias = bias_TR.to(q.dtype)
        keys, values = k[:, :, :kept].transpose(2, 3), v[:, :, :kept]
        past = (q[:, :, :kept] @ keys + bias[:kept]).softmax(-1) @ values
        own_q, own_k, own_v = (
            x[:, :, kept:].reshape(*x.shape[:2], units, -1, x.shape[-1]) for x in (q, k, v)
        )
        own = (own_q @ own_k.transpose(3, 4)).flatten(2, 3)
        score = torch.cat([q[:, :, kept:] @ keys + bias[kept:], own], dim=-1).softmax(-1)
        weight, own_weight = torch.split(score, [kept, own.shape[-1]], dim=-1)
        own_weight = own_weight.reshape(*own_q.shape[:-1], own.shape[-1])
        new = weight @ values + (own_weight @ own_v).flatten(2, 3)
        return torch.cat([past, new], dim=2)

    return attend


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Units of the agent: picture [B, U, P, Z], sound [B, U, 4, Z], phones [B, U, 4], words [B, U, 1]."""

    picture: Tensor
    sound: Tensor
    phones: Tensor
    words: Tensor

    def to(self, device: str) -> Batch:
        """A copy on a device."""
        return Batch(
            picture=self.picture.to(device), sound=self.sound.to(device),
            phones=self.phones.to(device), words=self.words.to(device),
        )  # fmt: skip


def crop(track: Track, words: Tensor, starts: list[int], units: int) -> Batch:
    """Cut `units` units out of a track at each of the start frames."""
    frames = units * STEPS_PER_UNIT

    def cut(x: Tensor, *shape: int) -> Tensor:
        return torch.stack([x[start : start + frames] for start in starts]).reshape(
            len(starts), units, *shape
        )

    return Batch(
        picture=cut(track.picture, -1, track.picture.shape[-1]),
        sound=cut(track.sound, STEPS_PER_UNIT, track.sound.shape[-1]),
        phones=cut(track.phones, STEPS_PER_UNIT),
        words=cut(words, STEPS_PER_UNIT)[..., :1],
    )


def velocity_loss(
    network: StreamerNetwork, sequence: Sequence, batch: Batch, *, history_noise: float
) -> dict[str, Tensor]:
    """Flow-matching loss (eps - z) of picture and sound, each unit at a flow time of its own."""
    size, units = batch.words.shape[:2]
    dim, device = network.config.transformer.dim, batch.picture.device
    tau_BU = torch.sigmoid(torch.randn(size, units, device=device))
    streams = {"picture": (Token.AGENT_PICTURE, batch.picture), "sound": (Token.AGENT_SOUND, batch.sound)}
    noise = {name: torch.randn_like(z) for name, (_, z) in streams.items()}
    noisy, clean = {}, {}
    for name, (_, z) in streams.items():
        tau = tau_BU[:, :, None, None]
        noisy[name] = (1 - tau) * z + tau * noise[name]
        level = history_noise * torch.rand(size, 1, 1, 1, device=device)
        clean[name] = (1 - level) * z + level * torch.randn_like(z)

    x_BTC = torch.zeros(size, len(sequence.steps_T), dim, device=device)
    modulation = network.transformer.flow_time(torch.zeros(1, 1, device=device))
    modulation = modulation.expand(size, len(sequence.steps_T), -1, -1).clone()

    def put(token: Token, part: int, tokens_BTC: Tensor) -> None:
        x_BTC[:, sequence.places[token, part].flatten()] = tokens_BTC.to(x_BTC.dtype)

    for part, latents in ((int(Block.REMEMBER), clean), (NOISY, noisy)):
        pair = network.agent_tokens(latents["picture"].flatten(1, 2), latents["sound"].flatten(1, 2))
        for token, tokens in zip(AGENT, pair, strict=True):
            put(token, part, tokens + network.noisy if part == NOISY else tokens)
    unit_modulation = network.transformer.flow_time(tau_BU)
    for token in AGENT:
        place_UP = sequence.places[token, NOISY]
        made = unit_modulation.repeat_interleave(place_UP.shape[1], 1)
        modulation[:, place_UP.flatten()] = made.to(modulation.dtype)
    words, phones = network.text_tokens(batch.words.flatten(1), batch.phones.flatten(1))
    put(Token.WORD, Block.STATE, words)
    put(Token.PHONE, Block.STATE, phones)
    for token in (Token.USER_PICTURE, Token.USER_SOUND):
        if (token, Block.STATE) in sequence.places:
            count = sequence.places[token, Block.STATE].numel()
            put(token, Block.STATE, network.token_class.weight[token].expand(size, count, -1))

    out = network.run(x_BTC, sequence.steps_T, modulation, masked(sequence))
    velocities = network.velocity_head(*(out[:, sequence.places[token, NOISY].flatten()] for token in AGENT))
    losses = {}
    for (name, (_, z)), velocity in zip(streams.items(), velocities, strict=True):
        losses[name] = (velocity.float() - (noise[name] - z).flatten(1, 2)).square().mean()
    return losses


def train_performer(
    config: TrainConfig,
    sizes: PocketConfig,
    track: Track,
    held_out: Track,
    *,
    batch: int,
    units: int,
    with_user_after: int,
    resume: bool,
    start: StreamerNetwork | None = None,
) -> StreamerNetwork:
    """Train from `start` or from nothing; from step `with_user_after` on, the user's tokens are there too.

    These are gated, and so far empty: they carry time alone.

    Raises:
        TrainingError: a track is shorter than one sequence of `units` units.
    """
    torch.manual_seed(config.seed)
    network = start or StreamerNetwork(sizes)
    for part in (network.ears, network.eyes):
        part.requires_grad_(False)
    network.sense_gate.requires_grad_(False)
    alone = lay_sequence(sizes, units, (Token.WORD, Token.PHONE, *AGENT)).to(config.device)
    full = lay_sequence(sizes, units, tuple(Token)).to(config.device)
    words, held_words = track.words(), held_out.words()
    frames = units * STEPS_PER_UNIT
    if min(len(words), len(held_words)) <= frames:
        raise TrainingError(f"the tracks are shorter than units={units}: take more sentences or fewer units")

    def losses(step: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
        starts = torch.randint(0, len(words) - frames, (batch,), generator=generator).tolist()
        piece = crop(track, words, starts, units).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            sequence = full if step >= with_user_after else alone
            return velocity_loss(network, sequence, piece, history_noise=0.2)

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        assert isinstance(model, StreamerNetwork)
        torch.manual_seed(0)
        starts = list(range(0, len(held_words) - frames, frames))[:8]
        sequence = full if step > with_user_after else alone
        piece = crop(held_out, held_words, starts, units).to(config.device)
        parts = velocity_loss(model, sequence, piece, history_noise=0.0)
        return {f"held_out_{name}": value.item() for name, value in parts.items()}

    average = train(config, network, losses, evaluate, resume=resume)
    network.load_state_dict(average)
    return network.eval()

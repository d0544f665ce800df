"""Train the speaking tower as the Performer uses it: the velocity of the next unit's picture and sound.

Latents come in pairs: picture [B, U, P, Z] and sound [B, U, 4, Z'], U units with P picture tokens each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.layout import STEPS_PER_UNIT, Tower
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.network.streamer import StreamerNetwork
from training.errors import TrainingError
from training.loop import TrainConfig, train
from training.sequence import Past, Sequence, lay_sequence, reader, writer
from training.tracks import Track

HISTORY_NOISE = 0.2  # the most noise that what was done before is seen through, so that errors don't add up

Latents = tuple[Tensor, Tensor]
"""Picture and sound: latents, noise or velocities."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentBatch:
    """Units of the agent: its latents, and the slots that say what it does.

    picture [B, U, P, Z], sound [B, U, 4, Z'], phones [B, U, 4], words [B, U, 1], gestures [B, U, 12].
    """

    picture: Tensor
    sound: Tensor
    phones: Tensor
    words: Tensor
    gestures: Tensor

    def to(self, device: str) -> AgentBatch:
        """A copy on a device."""
        return AgentBatch(
            picture=self.picture.to(device), sound=self.sound.to(device), phones=self.phones.to(device),
            words=self.words.to(device), gestures=self.gestures.to(device),
        )  # fmt: skip

    @property
    def latents(self) -> Latents:
        """What is to be made."""
        return self.picture, self.sound


def crop(track: Track, words: Tensor, starts: list[int], units: int) -> AgentBatch:
    """Cut `units` units out of a track at each of the start frames; `words` is `track.words()`."""
    frames = units * STEPS_PER_UNIT

    def cut(x: Tensor, *shape: int) -> Tensor:
        pieces = torch.stack([x[start : start + frames] for start in starts])
        return pieces.reshape(len(starts), units, *shape)

    return AgentBatch(
        picture=cut(track.picture, -1, track.picture.shape[-1]),
        sound=cut(track.sound, STEPS_PER_UNIT, track.sound.shape[-1]),
        phones=cut(track.phones, STEPS_PER_UNIT),
        words=cut(words, STEPS_PER_UNIT)[..., :1],
        gestures=cut(track.gesture, STEPS_PER_UNIT * track.gesture.shape[-1]),
    )


def random_pieces(track: Track, batch: int, units: int) -> Callable[[int, int], AgentBatch]:
    """(step, seed) -> `batch` pieces of `units` units from anywhere in the track, always the same ones.

    Raises:
        TrainingError: the track is shorter than one piece.
    """
    words = track.words()
    room = _require_room(words, units)

    def draw(step: int, seed: int) -> AgentBatch:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        starts = torch.randint(0, room, (batch,), generator=generator).tolist()
        return crop(track, words, starts, units)

    return draw


def even_pieces(track: Track, units: int) -> AgentBatch:
    """The first pieces of a track, up to 8, one after the other; raises as `random_pieces` does."""
    words = track.words()
    starts = list(range(0, _require_room(words, units), units * STEPS_PER_UNIT))
    return crop(track, words, starts[:8], units)


def _require_room(words: Tensor, units: int) -> int:
    room = len(words) - units * STEPS_PER_UNIT
    if room <= 0:
        raise TrainingError(f"a track is shorter than units={units}: take more sentences or fewer units")
    return room


def noise_like(latents: Latents) -> Latents:
    """Unit-normal noise of the same shapes: picture first."""
    picture, sound = latents
    return torch.randn_like(picture), torch.randn_like(sound)


def mix(clean: Latents, noise: Latents, share: Tensor) -> Latents:
    """Latents at flow time `share` [B, U or 1, 1, 1] on the straight way from clean (0) to noise (1)."""
    (picture, sound), (picture_noise, sound_noise) = clean, noise
    return (1 - share) * picture + share * picture_noise, (1 - share) * sound + share * sound_noise


def remember(network: StreamerNetwork, sequence: Sequence, batch: AgentBatch, history: Latents) -> Past:
    """Run the kept tokens: the text and gesture slots, and `history` as what the agent did."""
    streams = (
        *network.text_tokens(batch.words.flatten(1), batch.phones.flatten(1)),
        network.gesture_token(batch.gestures),
        *network.agent_tokens(history[0].flatten(1, 2), history[1].flatten(1, 2)),
    )
    past: Past = []
    clean = network.flow_time(torch.zeros(1, 1, device=batch.words.device))
    network.run(_unit_by_unit(streams, sequence.units), sequence.kept_steps_R, clean, writer(sequence, past))
    return past


def velocity(
    network: StreamerNetwork, sequence: Sequence, past: Past, noisy: Latents, tau_BU: Tensor
) -> Latents:
    """Change of latents by flow time, of all units at once, each at a flow time of its own; float32."""
    units, shapes = sequence.units, [x.shape for x in noisy]
    tokens = network.agent_tokens(noisy[0].flatten(1, 2), noisy[1].flatten(1, 2))
    x_BQC = _unit_by_unit(tokens, units) + network.noisy
    each = x_BQC.shape[1] // units
    modulation = network.flow_time(tau_BU).repeat_interleave(each, dim=1)
    out = network.run(x_BQC, sequence.noisy_steps_Q, modulation, reader(sequence, past))
    out = out.view(len(out), units, each, -1)
    picture, sound = torch.split(out, [shapes[0][2], shapes[1][2]], dim=2)
    made = network.velocity_head(picture.flatten(1, 2), sound.flatten(1, 2))
    return made[0].float().view(shapes[0]), made[1].float().view(shapes[1])


def velocity_loss(
    network: StreamerNetwork, sequence: Sequence, batch: AgentBatch, *, history_noise: float
) -> dict[str, Tensor]:
    """Flow-matching loss (eps - z) of picture and sound, each unit at a flow time of its own."""
    size, units = batch.words.shape[:2]
    tau_BU = torch.sigmoid(torch.randn(size, units, device=batch.words.device))
    noise = noise_like(batch.latents)
    past = remember(network, sequence, batch, blurred(batch.latents, history_noise))
    made = velocity(network, sequence, past, mix(batch.latents, noise, tau_BU[:, :, None, None]), tau_BU)
    return squared_error(made, (noise[0] - batch.picture, noise[1] - batch.sound))


def blurred(latents: Latents, most: float) -> Latents:
    """What the agent did, seen through noise of a level of up to `most`, one for each sequence and stream."""
    size, device = len(latents[0]), latents[0].device
    noise = noise_like(latents)
    of_picture, of_sound = most * torch.rand(2, size, 1, 1, 1, device=device)
    return mix(latents, noise, of_picture)[0], mix(latents, noise, of_sound)[1]


def squared_error(made: Latents, wanted: Latents) -> dict[str, Tensor]:
    """Mean squared error of picture and of sound."""
    picture, sound = ((a - b).square().mean() for a, b in zip(made, wanted, strict=True))
    return {"picture": picture, "sound": sound}


def _unit_by_unit(streams: tuple[Tensor, ...], units: int) -> Tensor:
    """Streams of tokens [B, U * n, C] to one row in which all tokens of a unit stand together."""
    by_unit = [x_BTC.view(len(x_BTC), units, -1, x_BTC.shape[-1]) for x_BTC in streams]
    return torch.cat(by_unit, dim=2).flatten(1, 2)


def train_performer(
    config: TrainConfig,
    sizes: PocketConfig,
    track: Track,
    held_out: Track,
    *,
    batch: int,
    units: int,
    resume: bool,
    start: StreamerNetwork | None = None,
) -> StreamerNetwork:
    """Train from `start` or from nothing.

    Raises:
        TrainingError: a track is shorter than one sequence of `units` units.
    """
    torch.manual_seed(config.seed)
    network = start or StreamerNetwork(sizes)
    network.listener.requires_grad_(False)
    sequence = lay_sequence(sizes.layout(), Tower.SPEAKING, units).to(config.device)
    pieces, shown = random_pieces(track, batch, units), even_pieces(held_out, units).to(config.device)

    def losses(step: int) -> dict[str, Tensor]:
        piece = pieces(step, config.seed).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            return velocity_loss(network, sequence, piece, history_noise=HISTORY_NOISE)

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # always the same units and noise
        assert isinstance(model, StreamerNetwork)
        torch.manual_seed(0)
        parts = velocity_loss(model, sequence, shown, history_noise=0.0)
        return {f"held_out_{name}": value.item() for name, value in parts.items()}

    average = train(config, network, losses, evaluate, resume=resume)
    network.load_state_dict(average)
    return network.eval()

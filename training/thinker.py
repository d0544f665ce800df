"""Train the tower that listens: from what the user's microphone hears to what was asked, and who speaks.

The user is made up step by step (`training.data`): scenes of speech, noise and music, some of them
before a camera, whose glances the tower sees through eyes that were trained before (`training.vision`).
Beside the heads that the runtime uses, a head for phones is trained and thrown away: whoever knows which
phone sounds hears requests in voices that were never met.

Shape suffixes: B batch, N samples, T hops, F bins, M mel bands, U units, S sound frames of 40 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.causal import init_contexts
from shared.models.layout import Tower
from shared.models.pocket.config import FRAMES_PER_UNIT, PocketConfig
from shared.models.pocket.network.encoders import VisionEncoder
from shared.models.pocket.network.listener import Listener, SpeechDetection
from shared.models.pocket.speech.phones import PHONES
from shared.models.transformer import rms_norm
from training.data.hearing.scenes import compose_batch
from training.data.noise.synth import Sound
from training.data.vision.scene import watch
from training.data.voices.bank import UtteranceBank
from training.loop import TrainConfig, train
from training.sequence import Sequence as Layout
from training.sequence import lay_sequence, writer

IGNORED = -1
WARP = (0.84, 1.2)  # of the frequency axis: shorter and longer vocal tracts (VTLP, Jaitly and Hinton 2013)
MASKED_BANDS = 8  # the most mel bands that are hidden at a time (SpecAugment, arXiv 1904.08779)
REQUEST_WEIGHT = torch.tensor(3.0)  # of frames in which a request ends; most frames are none
PHONE_WEIGHT, VOICE_WEIGHT = 0.5, 0.3
CLIP_UNITS = 8  # of picture before the scene before the camera changes


@dataclass(frozen=True, kw_only=True, slots=True)
class ListeningBatch:
    """A batch: sound [B, N] with targets per 40 ms [B, S], and what the first P of the B scenes look like.

    `frames` is [P, U, 4, 3, H, W] in [-1, 1].
    """

    pcm: Tensor
    request: Tensor
    voice: Tensor
    phones: Tensor
    frames: Tensor

    def to(self, device: str) -> ListeningBatch:
        """A copy on a device."""
        return ListeningBatch(**{name: getattr(self, name).to(device) for name in self.__dataclass_fields__})


class ListenerWithPhones(nn.Module):
    """The listener with the phone head that helps it learn; its eyes stay as they are."""

    def __init__(self, listener: Listener, dim: int) -> None:
        super().__init__()
        self.listener = listener
        self.listener.vision_encoder.requires_grad_(False)
        self.phones = nn.Linear(dim, len(PHONES))

    def train(self, mode: bool = True) -> ListenerWithPhones:
        """As every module, but for the eyes."""
        super().train(mode)
        self.listener.vision_encoder.eval()
        return self


def listener_of(model: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that are kept, out of those of a listener with the phone head."""
    prefix = "listener."
    return {name.removeprefix(prefix): w for name, w in model.items() if name.startswith(prefix)}


def draw_listening(
    bank: UtteranceBank,
    rng: np.random.Generator,
    *,
    size: int,
    pictured: int,
    units: int,
    echoes: Sequence[Sound] = (),
    held_out: bool = False,
) -> ListeningBatch:
    """Make up `size` scenes of `units` units, the first `pictured` of them with somebody to see.

    In some of them the agent is heard out of the user's loudspeaker: `echoes` are sounds of its voice.
    """
    heard = compose_batch(bank, rng, size, units * 0.16, echoes=echoes)
    sights = [
        watch(rng, CLIP_UNITS, held_out=held_out).frames for _ in range(pictured * (units // CLIP_UNITS))
    ]
    frames = torch.from_numpy(np.stack(sights)).permute(0, 1, 4, 2, 3).float() / 127.5 - 1
    return ListeningBatch(
        pcm=torch.from_numpy(heard.pcm),
        request=torch.from_numpy(heard.request),
        voice=torch.from_numpy(heard.voice),
        phones=torch.from_numpy(heard.phones),
        frames=frames.reshape(pictured, units, FRAMES_PER_UNIT, *frames.shape[2:]),
    )


def warped_filters(filters_FM: Tensor, factors_B: Tensor) -> Tensor:
    """Mel filters [B, F, M] that read a spectrum whose frequencies are stretched by the factors."""
    bins = len(filters_FM)
    at_BF = torch.arange(bins, device=filters_FM.device) * factors_B[:, None]
    low_BF = at_BF.floor().long()
    share_BF = (at_BF - low_BF)[..., None]
    inside_BF = (at_BF <= bins - 1)[..., None]
    low, high = filters_FM[low_BF.clamp(max=bins - 1)], filters_FM[(low_BF + 1).clamp(max=bins - 1)]
    return ((1 - share_BF) * low + share_BF * high) * inside_BF


def perceive(
    model: ListenerWithPhones, sequence: Layout, scenes: ListeningBatch, generator: torch.Generator | None
) -> tuple[SpeechDetection, Tensor]:
    """Run whole scenes at once; with a generator, hearing is warped and masked at random.

    Returns:
        What the heads say; phone logits [B, S, phones].
    """
    listener = model.listener
    audio_encoder, size, units = listener.audio_encoder, len(scenes.pcm), sequence.units
    spectrum_BTF, _ = audio_encoder.spectrum(scenes.pcm, audio_encoder.init_state(size).tail_BN)
    mel_FM = audio_encoder.mel_FM
    if generator is None:
        mel_BTM = audio_encoder.loudness(spectrum_BTF @ mel_FM)
    else:
        factors = WARP[0] + (WARP[1] - WARP[0]) * torch.rand(size, generator=generator)
        mel_BTM = audio_encoder.loudness(
            torch.bmm(spectrum_BTF, warped_filters(mel_FM, factors.to(mel_FM.device)))
        )
        mel_BTM = _masked(mel_BTM, generator)
    heard = audio_encoder.tokens(mel_BTM, init_contexts(audio_encoder.blocks, size))
    dark = -torch.ones(1, *scenes.frames.shape[2:], device=scenes.pcm.device)
    with torch.no_grad():
        seen = listener.vision_encoder(torch.cat([scenes.frames.flatten(0, 1), dark]))[:, 0]
    pictured = seen[:-1].view(*scenes.frames.shape[:2], -1)
    blind = seen[-1].expand(size - len(pictured), units, -1)
    picture, sound = listener.user_tokens(torch.cat([pictured, blind]), heard)
    tokens = torch.cat([picture[:, :, None], sound.view(size, units, -1, sound.shape[-1])], dim=2)
    out = listener.run(tokens.flatten(1, 2), sequence.kept_steps_R, writer(sequence, []))
    out = out.view(size, units, -1, out.shape[-1])
    sound_out = out[:, :, 1:].flatten(1, 2)
    return listener.detect(sound_out), model.phones(rms_norm(sound_out))


def _masked(mel_BTM: Tensor, generator: torch.Generator) -> Tensor:
    """Hide a run of mel bands in each scene."""
    size, _, bands = mel_BTM.shape
    width = torch.randint(0, MASKED_BANDS + 1, (size, 1), generator=generator)
    start = torch.randint(0, bands, (size, 1), generator=generator)
    band = torch.arange(bands)
    hidden = ((band >= start) & (band < start + width)).to(mel_BTM.device)
    return mel_BTM.masked_fill(hidden[:, None], float(mel_BTM.min()))


def listening_loss(heard: SpeechDetection, phones_BSP: Tensor, scenes: ListeningBatch) -> dict[str, Tensor]:
    """Cross-entropies of all heads, weighed against each other."""
    weight = torch.ones(heard.request.shape[-1], device=scenes.pcm.device)
    weight[1:] = REQUEST_WEIGHT
    return {
        "request": F.cross_entropy(
            heard.request.float().flatten(0, 1), scenes.request.flatten(),
            weight=weight, ignore_index=IGNORED, label_smoothing=0.02,
        ),
        "voice": VOICE_WEIGHT * F.binary_cross_entropy_with_logits(heard.voice.float(), scenes.voice),
        "phones": PHONE_WEIGHT
        * F.cross_entropy(phones_BSP.float().flatten(0, 1), scenes.phones.flatten(), ignore_index=IGNORED),
    }  # fmt: skip


def listening_accuracy(
    heard: SpeechDetection, phones_BSP: Tensor, scenes: ListeningBatch
) -> dict[str, float]:
    """How often each head is right, in percent; requests by their frames, false alarms by the others."""
    request, truth = heard.request.argmax(-1), scenes.request
    asked, silent, known = truth > 0, truth == 0, scenes.phones >= 0

    def percent(right: Tensor) -> float:
        return 100 * float(right.float().mean())

    return {
        "asked": percent(request[asked] == truth[asked]),
        "alarms": percent(request[silent] > 0),
        "voice": percent((heard.voice > 0) == (scenes.voice > 0.5)),
        "phones": percent(phones_BSP.argmax(-1)[known] == scenes.phones[known]),
    }


def train_thinker(
    config: TrainConfig,
    sizes: PocketConfig,
    bank: UtteranceBank,
    held_out: UtteranceBank,
    *,
    batch: int,
    pictured: int,
    units: int,
    resume: bool,
    eyes: VisionEncoder,
    start: Listener | None = None,
    echoes: Sequence[Sound] = (),
) -> Listener:
    """Train the tower from `start` or from nothing, with trained `eyes`, on scenes made of the bank's voices.

    `echoes` are sounds of the agent's own voice, to which it must not listen.
    """
    torch.manual_seed(config.seed)
    listener = start or Listener(sizes)
    listener.vision_encoder = eyes
    model = ListenerWithPhones(listener, sizes.listener.dim)
    sequence = lay_sequence(sizes.layout(), Tower.LISTENING, units).to(config.device)
    exam = [
        draw_listening(
            held_out, np.random.default_rng((77, part)), size=16, pictured=4, units=units, held_out=True
        )
        for part in range(4)
    ]

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        scenes = draw_listening(bank, rng, size=batch, pictured=pictured, units=units, echoes=echoes)
        scenes = scenes.to(config.device)
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            return listening_loss(*perceive(model, sequence, scenes, generator), scenes)

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step
        assert isinstance(model, ListenerWithPhones)
        return _mean_of(exam, lambda scenes: _examine(model, sequence, scenes.to(config.device)))

    average = train(config, model, losses, evaluate, resume=resume)
    model.load_state_dict(average)
    return model.listener.eval()


@torch.no_grad()
def _examine(model: ListenerWithPhones, sequence: Layout, scenes: ListeningBatch) -> dict[str, float]:
    return listening_accuracy(*perceive(model, sequence, scenes, None), scenes)


def _mean_of(
    batches: list[ListeningBatch], examine: Callable[[ListeningBatch], dict[str, float]]
) -> dict[str, float]:
    marks = [examine(scenes) for scenes in batches]
    return {f"held_out_{name}": sum(mark[name] for mark in marks) / len(marks) for name in marks[0]}

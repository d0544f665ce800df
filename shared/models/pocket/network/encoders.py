"""Encoders of the user: from sound and pictures to tokens, small and causal.

Shape suffixes: B batch, N samples, T hops, F bins, M mel bands, C channels, H W picture, U units.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from shared.models.audio_codec import AudioCodecState
from shared.models.causal import ConvNeXtBlock, init_contexts
from shared.models.layout import STEPS_PER_UNIT
from shared.models.onednn import pack
from shared.models.pocket.config import FRAMES_PER_UNIT, ListenerConfig
from shared.models.pocket.dialogue.replies import Colour

FLOOR = 1e-3  # magnitude of a mel band that counts as silence, for full scale 1
PLACE = 2  # to the right and down
POOLED = 4  # rows and columns that a picture is pooled to


def mel_filters(window: int, bands: int, sample_rate: int) -> Tensor:
    """Triangular filters [window / 2 + 1, bands], evenly spaced on the mel scale (HTK's formula)."""
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    bins = torch.linspace(0, sample_rate / 2, window // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


class AudioEncoder(nn.Module):
    """Sound to one token every 40 ms."""

    window_N: Tensor
    mel_FM: Tensor

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("window_N", torch.hann_window(config.window), persistent=False)
        mel = mel_filters(config.window, config.mel_bands, config.sample_rate)
        self.register_buffer("mel_FM", mel, persistent=False)
        self.read = nn.Linear(config.mel_bands, config.audio_dim)
        self.blocks = nn.ModuleList(ConvNeXtBlock(config.audio_dim, 5, 2) for _ in range(config.audio_blocks))
        self.write = nn.Linear(STEPS_PER_UNIT * config.audio_dim, config.dim)

    def init_state(self, batch: int) -> AudioCodecState:
        tail = torch.zeros(batch, self.config.window - self.config.hop, device=self.window_N.device)
        return AudioCodecState(tail, init_contexts(self.blocks, batch))

    def forward(self, pcm_BN: Tensor, state: AudioCodecState) -> Tensor:
        """Encode N samples (a multiple of 640) to tokens [B, N / 640, C]."""
        spectrum_BTF, state.tail_BN = self.spectrum(pcm_BN, state.tail_BN)
        return self.tokens(self.loudness(spectrum_BTF @ self.mel_FM), state.contexts)

    def spectrum(self, pcm_BN: Tensor, tail_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitudes [B, T, F] of windows that end with each hop, and the tail for the next call."""
        config = self.config
        joined = torch.cat([tail_BN, pcm_BN], dim=1)
        frames = joined.unfold(1, config.window, config.hop) * self.window_N
        return torch.fft.rfft(frames).abs(), joined[:, joined.shape[1] - (config.window - config.hop) :]

    @staticmethod
    def loudness(mel_BTM: Tensor) -> Tensor:
        """Logarithm of mel bands, brought to about unit range."""
        return ((mel_BTM + FLOOR).log() + 2) / 3

    def tokens(self, mel_BTM: Tensor, contexts: list[Tensor]) -> Tensor:
        """From loudness [B, T, M] to tokens [B, T / 4, C]; moves the `contexts` of the blocks on."""
        x_BTC = self.read(mel_BTM)
        for index, block in enumerate(self.blocks):
            x_BTC, contexts[index] = block(x_BTC, contexts[index])
        tokens: Tensor = self.write(x_BTC.unflatten(1, (-1, STEPS_PER_UNIT)).flatten(2))
        return tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class SceneDetection:
    """Who and what is in the picture: `present` [B, U] and `colour` [B, U, colours] as logits, and `place`.

    The place [B, U, 2] is that of the user's face in [-1, 1], x to the right and y down in the picture.
    """

    present: Tensor
    place: Tensor
    colour: Tensor


class VisionEncoder(nn.Module):
    """The four frames of a unit to one token, and a head that reads off it who and what is there."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        widths = (3 * FRAMES_PER_UNIT, *config.vision_widths)
        self.downs = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in itertools.pairwise(widths)
        )
        self.mixes = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1, bias=False) for w in config.vision_widths)
        self.down_norms = nn.ModuleList(nn.BatchNorm2d(width) for width in config.vision_widths)
        self.mix_norms = nn.ModuleList(nn.BatchNorm2d(width) for width in config.vision_widths)
        self.write = nn.Linear(config.vision_widths[-1] * POOLED**2, config.dim)
        self.scene_head = nn.Linear(config.dim, 1 + PLACE + len(Colour))

    def packed(self, dtype: torch.dtype) -> Self:
        """Fold the norms into the convolutions before them, for inference in `dtype`."""
        for convs, norms in ((self.downs, self.down_norms), (self.mixes, self.mix_norms)):
            for index, (conv, norm) in enumerate(zip(convs, norms, strict=True)):
                if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    convs[index], norms[index] = fuse_conv_bn_eval(conv, norm), nn.Identity()
        pack(self, dtype)
        return self

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """Encode a unit's frames [B, 4, 3, H, W] in [-1, 1] to a token [B, 1, C]."""
        x = frames_BTCHW.flatten(1, 2)
        layers = zip(self.downs, self.down_norms, self.mixes, self.mix_norms, strict=True)
        for down, down_norm, mix, mix_norm in layers:
            x = F.silu(down_norm(down(x)))
            x = x + F.silu(mix_norm(mix(x)))
        token: Tensor = self.write(F.adaptive_avg_pool2d(x, POOLED).flatten(1))
        return token[:, None]

    def detect(self, tokens_BUC: Tensor) -> SceneDetection:
        """Read the head off the tokens of U units."""
        logits = self.scene_head(F.silu(tokens_BUC))
        present, place, colour = torch.split(logits, [1, PLACE, len(Colour)], dim=-1)
        return SceneDetection(present=present[..., 0], place=place.tanh(), colour=colour)

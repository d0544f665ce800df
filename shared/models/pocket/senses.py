"""The user's side of the pocket model: small causal encoders from sound and picture to tokens.

Shape suffixes: B batch, N samples, T hops, M mel bands, C channels, H W picture, S tokens a unit.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.audio_codec import AudioCodecState
from shared.models.causal import ConvNeXtBlock, init_contexts
from shared.models.layout import STEPS_PER_UNIT
from shared.models.pocket.config import FRAMES_PER_UNIT, SensesConfig


def mel_filters(window: int, bands: int, sample_rate: int) -> Tensor:
    """Triangular filters [window / 2 + 1, bands], evenly spaced on the mel scale (HTK's formula)."""
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    bins = torch.linspace(0, sample_rate / 2, window // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


class Ears(nn.Module):
    """Sound to one token every 40 ms."""

    window_N: Tensor
    mel_FM: Tensor

    def __init__(self, config: SensesConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("window_N", torch.hann_window(config.window), persistent=False)
        mel = mel_filters(config.window, config.mel_bands, config.sample_rate)
        self.register_buffer("mel_FM", mel, persistent=False)
        self.read = nn.Linear(config.mel_bands, config.ear_dim)
        self.blocks = nn.ModuleList(ConvNeXtBlock(config.ear_dim, 5, 2) for _ in range(config.ear_blocks))
        self.write = nn.Linear(STEPS_PER_UNIT * config.ear_dim, dim)

    def init_state(self, batch: int) -> AudioCodecState:
        """Memory before the first sound."""
        tail = torch.zeros(batch, self.config.window - self.config.hop, device=self.window_N.device)
        return AudioCodecState(tail, init_contexts(self.blocks, batch))

    def forward(self, pcm_BN: Tensor, state: AudioCodecState) -> Tensor:
        """Hear N samples (a multiple of 640); return tokens [B, N / 640, C]."""
        config = self.config
        joined = torch.cat([state.tail_BN, pcm_BN], dim=1)
        state.tail_BN = joined[:, joined.shape[1] - (config.window - config.hop) :]
        frames = joined.unfold(1, config.window, config.hop) * self.window_N
        mel_BTM = torch.fft.rfft(frames).abs() @ self.mel_FM
        x_BTC = self.read((mel_BTM + 1e-3).log())
        for index, block in enumerate(self.blocks):
            x_BTC, state.contexts[index] = block(x_BTC, state.contexts[index])
        tokens: Tensor = self.write(x_BTC.unflatten(1, (-1, STEPS_PER_UNIT)).flatten(2))
        return tokens


class Eyes(nn.Module):
    """The four frames of a unit, seen together, to a small grid of tokens."""

    def __init__(self, config: SensesConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        widths = config.eye_widths
        pixels = 3 * FRAMES_PER_UNIT * config.eye_patch**2
        self.read = nn.Conv2d(pixels, widths[0], 1)
        self.downs = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in itertools.pairwise(widths))
        self.write = nn.Conv2d(widths[-1], dim, 1)

    def forward(self, frames_BTCHW: Tensor) -> Tensor:
        """See [B, 4, 3, H, W] in [-1, 1]; return tokens [B, S, C]."""
        x = self.read(F.pixel_unshuffle(frames_BTCHW.flatten(1, 2), self.config.eye_patch))
        for down in self.downs:
            x = down(F.silu(x))
        tokens: Tensor = self.write(F.silu(x)).flatten(2).transpose(1, 2)
        return tokens

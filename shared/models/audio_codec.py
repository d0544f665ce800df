"""Causal audio codec: sound to a short row of latents and back, with explicit streaming state.

The encoder reads the log-magnitude of an STFT; the decoder predicts magnitude and phase and overlaps
the inverse transforms (the head of Vocos, arXiv 2306.00814). Both are causal in what they are fed.

A synthesis window reaches `lookahead` samples past the hop that it starts at. So that the latents of a
unit alone are enough to play that unit, the encoder is fed the sound *advanced* by `lookahead` samples;
a caller that encodes live sound waits those 30 ms, a decoder never waits.

Shape suffixes: B batch, N samples, T hops or latents, C channels, Z latent dims, W window, F bins.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.causal import ConvNeXtBlock, init_contexts
from shared.tables import require_positive

MAGNITUDE_FLOOR = 1e-3
LOG_MAGNITUDE_CEILING = 6.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AudioCodecConfig:
    """Sizes of the codec; `hop * stride` samples make one latent."""

    sample_rate: int = 16_000
    window: int = 640
    hop: int = 160
    stride: int = 4
    latent_dim: int = 64
    encoder_dim: int = 256
    encoder_blocks: int = 3
    latent_blocks: int = 2
    decoder_dim: int = 320
    decoder_blocks: int = 4
    kernel: int = 7
    expansion: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "audio codec")
        if self.window % self.hop:
            raise ValueError(f"audio codec: window={self.window} is not a multiple of hop={self.hop}")

    @property
    def lookahead(self) -> int:
        """Samples by which the encoder's input runs ahead of what the latents play."""
        return self.window - self.hop

    @property
    def samples_per_latent(self) -> int:
        return self.hop * self.stride

    @property
    def bins(self) -> int:
        return self.window // 2 + 1


@dataclass(slots=True)
class AudioCodecState:
    """State of one direction of the codec for one stream."""

    tail_BN: Tensor
    contexts: list[Tensor]


class AudioCodecEncoder(nn.Module):
    """Sound to latents."""

    window_W: Tensor

    def __init__(self, config: AudioCodecConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.encoder_dim
        self.register_buffer("window_W", torch.hann_window(config.window), persistent=False)
        self.read = nn.Linear(config.bins, dim)
        self.hop_blocks = nn.ModuleList(
            ConvNeXtBlock(dim, config.kernel, config.expansion) for _ in range(config.encoder_blocks)
        )
        self.fold = nn.Linear(config.stride * dim, dim)
        self.latent_blocks = nn.ModuleList(
            ConvNeXtBlock(dim, config.kernel, config.expansion) for _ in range(config.latent_blocks)
        )
        self.write = nn.Linear(dim, 2 * config.latent_dim)

    def init_state(self, batch: int, tail_BN: Tensor | None = None) -> AudioCodecState:
        """State of a stream that was silent until now, or whose last `lookahead` samples were `tail_BN`."""
        if tail_BN is None:
            tail_BN = torch.zeros(batch, self.config.lookahead, device=self.window_W.device)
        return AudioCodecState(tail_BN, init_contexts([*self.hop_blocks, *self.latent_blocks], batch))

    def forward(self, pcm_BN: Tensor, state: AudioCodecState) -> tuple[Tensor, Tensor]:
        """Encode N samples (a multiple of `samples_per_latent`); return mean and log-variance [B, T, Z]."""
        config = self.config
        joined = torch.cat([state.tail_BN, pcm_BN], dim=1)
        state.tail_BN = joined[:, joined.shape[1] - config.lookahead :]
        frames_BTW = joined.unfold(1, config.window, config.hop) * self.window_W
        magnitude_BTF = torch.fft.rfft(frames_BTW).abs()
        x_BTC = self.read(magnitude_BTF.clamp(min=MAGNITUDE_FLOOR).log())
        for index, block in enumerate(self.hop_blocks):
            x_BTC, state.contexts[index] = block(x_BTC, state.contexts[index])
        x_BTC = self.fold(x_BTC.unflatten(1, (-1, config.stride)).flatten(2))
        for index, block in enumerate(self.latent_blocks, start=config.encoder_blocks):
            x_BTC, state.contexts[index] = block(x_BTC, state.contexts[index])
        mean_BTZ, log_variance_BTZ = self.write(x_BTC).chunk(2, dim=-1)
        return mean_BTZ, log_variance_BTZ


class AudioCodecDecoder(nn.Module):
    """Latents to sound."""

    window_W: Tensor

    def __init__(self, config: AudioCodecConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.decoder_dim
        self.register_buffer("window_W", torch.hann_window(config.window), persistent=False)
        self.read = nn.Linear(config.latent_dim, dim)
        self.latent_blocks = nn.ModuleList(
            ConvNeXtBlock(dim, config.kernel, config.expansion) for _ in range(config.latent_blocks)
        )
        self.unfold = nn.Linear(dim, config.stride * dim)
        self.hop_blocks = nn.ModuleList(
            ConvNeXtBlock(dim, config.kernel, config.expansion) for _ in range(config.decoder_blocks)
        )
        self.norm = nn.LayerNorm(dim)
        self.write = nn.Linear(dim, 3 * config.bins)

    def init_state(self, batch: int) -> AudioCodecState:
        tail = torch.zeros(batch, self.config.lookahead, device=self.window_W.device)
        return AudioCodecState(tail, init_contexts([*self.latent_blocks, *self.hop_blocks], batch))

    def forward(self, z_BTZ: Tensor, state: AudioCodecState) -> Tensor:
        """Decode T latents to [B, T * samples_per_latent] samples in about [-1, 1]."""
        config = self.config
        x_BTC = self.read(z_BTZ)
        for index, block in enumerate(self.latent_blocks):
            x_BTC, state.contexts[index] = block(x_BTC, state.contexts[index])
        x_BTC = self.unfold(x_BTC).unflatten(2, (config.stride, -1)).flatten(1, 2)
        for index, block in enumerate(self.hop_blocks, start=config.latent_blocks):
            x_BTC, state.contexts[index] = block(x_BTC, state.contexts[index])
        return self._overlap_add(self.write(self.norm(x_BTC)).float(), state)

    def _overlap_add(self, head_BTF: Tensor, state: AudioCodecState) -> Tensor:
        config = self.config
        log_magnitude, real, imaginary = head_BTF.chunk(3, dim=-1)
        length = torch.sqrt(real.square() + imaginary.square() + 1e-8)
        spectrum = torch.complex(real / length, imaginary / length)
        spectrum = spectrum * log_magnitude.clamp(max=LOG_MAGNITUDE_CEILING).exp()
        frames_BTW = torch.fft.irfft(spectrum, n=config.window) * self.window_W
        batch, hops, _ = frames_BTW.shape
        overlap = config.window // config.hop
        # Each hop of output is the sum of `overlap` pieces, one from each frame that covers it.
        pieces = frames_BTW.unflatten(2, (overlap, config.hop))
        total = frames_BTW.new_zeros(batch, hops + overlap - 1, config.hop)
        for piece in range(overlap):
            total[:, piece : piece + hops] += pieces[:, :, piece]
        pcm_BN = total.flatten(1) / (self.window_W.square().sum() / config.hop)
        head = pcm_BN[:, : config.lookahead] + state.tail_BN
        pcm_BN = torch.cat([head, pcm_BN[:, config.lookahead :]], dim=1)
        state.tail_BN = pcm_BN[:, hops * config.hop :]
        return pcm_BN[:, : hops * config.hop]


class AudioCodec(nn.Module):
    """Encoder and decoder with the statistics that make the latents unit-normal."""

    latent_mean_Z: Tensor
    latent_std_Z: Tensor

    def __init__(self, config: AudioCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = AudioCodecEncoder(config)
        self.decoder = AudioCodecDecoder(config)
        self.register_buffer("latent_mean_Z", torch.zeros(config.latent_dim))
        self.register_buffer("latent_std_Z", torch.ones(config.latent_dim))

    def encode(self, pcm_BN: Tensor, state: AudioCodecState) -> Tensor:
        """Return unit-normal latents [B, T, Z] of sound that runs `lookahead` samples ahead."""
        mean_BTZ: Tensor = self.encoder(pcm_BN, state)[0]
        return (mean_BTZ - self.latent_mean_Z) / self.latent_std_Z

    def decode(self, z_BTZ: Tensor, state: AudioCodecState) -> Tensor:
        """Return the sound [B, T * samples_per_latent] of unit-normal latents."""
        pcm_BN: Tensor = self.decoder(z_BTZ * self.latent_std_Z + self.latent_mean_Z, state)
        return pcm_BN

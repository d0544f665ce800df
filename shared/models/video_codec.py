"""Causal video codec: frames to a few tokens each and back, with explicit streaming state.

Each frame goes through the same 2-D network; time is mixed only on the coarse grid, by causal convolutions
that remember the last frames. A token stands for a patch of that grid: one for the whole picture of a small
face, many for a large picture.

Shape suffixes: B batch, T frames, C channels, H W picture, G grid (rows, columns), N tokens a frame,
F features of a token, Z latent dims, P past frames.
"""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.onednn import packed_conv2d
from shared.tables import require_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoCodecConfig:
    """Sizes of the codec. The grid is the picture divided by `patch` * 2 ** (number of widths - 1)."""

    height: int = 128
    width: int = 128
    patch: int = 4
    widths: tuple[int, ...] = (48, 96, 160, 224)
    token_height: int = 4  # grid cells of one token
    token_width: int = 4
    latent_dim: int = 64
    time_kernel: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "video codec")
        cell = self.patch * 2 ** (len(self.widths) - 1)
        for name, size, token in (
            ("height", self.height, self.token_height),
            ("width", self.width, self.token_width),
        ):
            if size % (cell * token):
                raise ValueError(f"video codec: {name}={size} is not a multiple of {cell} * {token}")

    @property
    def grid(self) -> tuple[int, int]:
        cell = self.patch * 2 ** (len(self.widths) - 1)
        return self.height // cell, self.width // cell

    @property
    def tokens_per_frame(self) -> int:
        rows, columns = self.grid
        return rows * columns // (self.token_height * self.token_width)


class ChannelNorm(nn.Module):
    """RMS over the channels of each place alone: no statistics of the picture, so that streams don't mix."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Normalise [B, C, H, W] over C."""
        length_B1HW = torch.linalg.vector_norm(x_BCHW, dim=1, keepdim=True)
        return x_BCHW * torch.rsqrt(length_B1HW.square() / x_BCHW.shape[1] + 1e-6) * self.gain


class ShufflingConv2d(nn.Conv2d):
    """A convolution whose channels then become a picture `factor` times as large (`F.pixel_shuffle`)."""

    def __init__(self, channels: int, out: int, kernel: int, *, factor: int) -> None:
        super().__init__(channels, out * factor**2, kernel, padding=kernel // 2)
        self.factor = factor

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return [B, out, factor * H, factor * W]."""
        return F.pixel_shuffle(super().forward(x_BCHW), self.factor)

    def packed(self, dtype: torch.dtype) -> nn.Module:
        """For inference the channels of a pixel lie together, so that whole pixels are moved."""
        assert self.bias is not None
        order = torch.arange(self.out_channels).view(-1, self.factor**2).t().flatten()
        with torch.no_grad():
            self.weight.copy_(self.weight[order])
            self.bias.copy_(self.bias[order])
        return nn.Sequential(packed_conv2d(self, dtype), MovePixels(self.factor))


class MovePixels(nn.Module):
    """`F.pixel_shuffle` from and to channels-last, of channels that are sorted by place first."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return [B, C / factor^2, factor * H, factor * W]."""
        batch, _, height, width = x_BCHW.shape
        rows = x_BCHW.permute(0, 2, 3, 1).reshape(batch, height, width, self.factor, -1).transpose(2, 3)
        return rows.reshape(batch, height * self.factor, width * self.factor, -1).permute(0, 3, 1, 2)


class ResidualBlock(nn.Module):
    """Norm, SiLU, 3x3 convolution, twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(ChannelNorm(channels) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        last = self.convs[1]
        assert isinstance(last, nn.Conv2d)
        nn.init.zeros_(last.weight)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Same shape in and out."""
        y_BCHW = x_BCHW
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y_BCHW = conv(F.silu(norm(y_BCHW)))
        return x_BCHW + y_BCHW


class TimeMix(nn.Module):
    """Depthwise causal convolution over frames on the coarse grid, residual, starting as the identity."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.past = kernel - 1
        self.weight = nn.Parameter(torch.zeros(kernel, channels, 1, 1))
        self.norm = ChannelNorm(channels)

    def forward(self, x_BTCG: Tensor, context_BPCG: Tensor) -> tuple[Tensor, Tensor]:
        """Return [B, T, C, h, w] and the last frames, for the frames that follow."""
        frames = (context_BPCG.to(x_BTCG.dtype), x_BTCG)
        joined = torch.cat([x.movedim(2, -1) for x in frames], dim=1).movedim(-1, 2)  # channels-last
        normed = self.norm(joined.flatten(0, 1)).unflatten(0, joined.shape[:2])
        mixed = joined[:, self.past :]
        for index, weight in enumerate(self.weight):
            mixed = torch.addcmul(mixed, normed[:, index : index + mixed.shape[1]], weight)
        return mixed, joined[:, joined.shape[1] - self.past :]


class VideoCodec(nn.Module):
    """Encoder and decoder with the statistics that make the latents unit-normal."""

    latent_mean_Z: Tensor
    latent_std_Z: Tensor

    def __init__(self, config: VideoCodecConfig) -> None:
        super().__init__()
        self.config = config
        widths, top = config.widths, config.widths[-1]
        cells = config.token_height * config.token_width
        pixels = 3 * config.patch**2
        self.read = nn.Conv2d(pixels, widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(ResidualBlock(w) for w in widths)
        self.downs = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in itertools.pairwise(widths))
        self.encoder_mix = TimeMix(top, config.time_kernel)
        self.to_latent = nn.Linear(cells * top, 2 * config.latent_dim)
        self.from_latent = nn.Linear(config.latent_dim, cells * top)
        self.decoder_mix = TimeMix(top, config.time_kernel)
        self.up_blocks = nn.ModuleList(ResidualBlock(w) for w in reversed(widths))
        self.ups = nn.ModuleList(
            ShufflingConv2d(above, below, 1, factor=2)
            for above, below in itertools.pairwise(reversed(widths))
        )
        self.norm = ChannelNorm(widths[0])
        self.write = ShufflingConv2d(widths[0], 3, 3, factor=config.patch)
        self.register_buffer("latent_mean_Z", torch.zeros(config.latent_dim))
        self.register_buffer("latent_std_Z", torch.ones(config.latent_dim))

    def init_state(self, batch: int) -> Tensor:
        """State of one direction of a stream before its first frame: [B, P, C, h, w]."""
        rows, columns = self.config.grid
        past = self.config.time_kernel - 1
        return self.latent_mean_Z.new_zeros(batch, past, self.config.widths[-1], rows, columns)

    def encode_moments(self, frames_BTCHW: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode frames in [-1, 1]; return mean and log-variance [B, T, N, Z] and the new state."""
        batch, steps = frames_BTCHW.shape[:2]
        x = F.pixel_unshuffle(frames_BTCHW.flatten(0, 1), self.config.patch)
        x = self.read(x.contiguous(memory_format=torch.channels_last))
        for block, down in zip(self.down_blocks[:-1], self.downs, strict=True):
            x = down(block(x))
        x = self.down_blocks[-1](x)
        x_BTCG, state = self.encoder_mix(x.unflatten(0, (batch, steps)), state)
        mean, log_variance = self.to_latent(self._grid_to_tokens(x_BTCG)).chunk(2, dim=-1)
        return mean, log_variance, state

    def encode(self, frames_BTCHW: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return unit-normal latents [B, T, N, Z] and the new state."""
        mean, _, state = self.encode_moments(frames_BTCHW, state)
        return (mean - self.latent_mean_Z) / self.latent_std_Z, state

    def decode(self, z_BTNZ: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Decode unit-normal latents to frames [B, T, 3, H, W] in about [-1, 1], and the new state."""
        return self.decode_raw(z_BTNZ * self.latent_std_Z + self.latent_mean_Z, state)

    def decode_raw(self, z_BTNZ: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """As `decode`, from latents that were not normalised."""
        batch, steps = z_BTNZ.shape[:2]
        x_BTCG, state = self.decoder_mix(self._tokens_to_grid(self.from_latent(z_BTNZ)), state)
        x = x_BTCG.flatten(0, 1)
        for block, up in zip(self.up_blocks[:-1], self.ups, strict=True):
            x = up(block(x))
        frames_BCHW = self.write(F.silu(self.norm(self.up_blocks[-1](x))))
        return frames_BCHW.view(batch, steps, *frames_BCHW.shape[1:]), state

    def _grid_to_tokens(self, x_BTCG: Tensor) -> Tensor:
        height, width = self.config.token_height, self.config.token_width
        rows, columns = self.config.grid
        x = x_BTCG.reshape(*x_BTCG.shape[:3], rows // height, height, columns // width, width)
        return x.permute(0, 1, 3, 5, 2, 4, 6).flatten(4).flatten(2, 3)

    def _tokens_to_grid(self, x_BTNF: Tensor) -> Tensor:
        rows, columns = self.config.grid
        height, width = self.config.token_height, self.config.token_width
        x = x_BTNF.reshape(*x_BTNF.shape[:2], rows // height, columns // width, -1, height, width)
        return x.permute(0, 1, 4, 2, 5, 3, 6).flatten(5).flatten(3, 4)

"""The decoder of Wan 2.1's VAE as a stream: one latent in, one frame or four out, whatever came before.

Architecture and weight names: Wan 2.1 (github.com/Wan-Video/Wan2.1, `wan/modules/vae.py`). The first latent
gives one frame and passes by the convolutions over time between resolutions; every other latent gives four.

A causal convolution sees two frames before its own. Those two are all that a stream remembers of each
(`VaeMemory`, which the caller owns, one for each film); weights live in the modules. What a convolution
reads is put together in place, in a buffer whose border stays zero: nothing is padded or joined for a frame.
Buffers (`Workspace`) hold nothing between two calls and serve all films of a process.

Tensors lie as T frames, H height, W width, C channels, so that a norm over channels is one over neighbours in
memory, and convolutions get what they call channels-last.
"""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.tables import require_positive

PAST = 2  # frames that a causal convolution looks back at


@dataclass(frozen=True, kw_only=True, slots=True)
class VaeConfig:
    """Sizes; those of `Wan2.1_VAE.pth` by default. `multipliers` are of `dim`, from full resolution down."""

    dim: int = 96
    multipliers: tuple[int, int, int, int] = (1, 2, 4, 4)
    residual_blocks: int = 2
    latent_channels: int = 16

    def __post_init__(self) -> None:
        require_positive(self, "vae")


class Workspace:
    """Zero-bordered buffers by shape: what convolutions read from. For one thread."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], Tensor] = {}

    def buffer(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """One of this shape: what its user does not write is what the last one left, its border zero."""
        key = (*shape, like.dtype, like.device)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(shape, dtype=like.dtype, device=like.device)
        return self._buffers[key]


class VaeMemory:
    """What one film leaves behind in the decoder: the last two frames that each causal convolution saw."""

    def __init__(self) -> None:
        self.latents = 0
        """That were decoded so far."""
        self._past: dict[nn.Module, Tensor] = {}

    def past(self, convolution: nn.Module, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The two frames before those that come, [2, H, W, C]; zero before the first."""
        if convolution not in self._past:
            self._past[convolution] = torch.zeros((PAST, *shape), dtype=like.dtype, device=like.device)
        return self._past[convolution]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return sum(past.nbytes for past in self._past.values())


class CausalConv3d(nn.Conv3d):
    """A convolution that looks back in time and never ahead."""

    def forward(  # type: ignore[override]
        self, x_THWC: Tensor, memory: VaeMemory, workspace: Workspace
    ) -> Tensor:
        """Frames behind those that the memory holds; same height and width in and out."""
        frames, height, width, channels = x_THWC.shape
        _, rows, columns = self.kernel_size
        top, left = rows // 2, columns // 2
        shape = (PAST + frames, height + 2 * top, width + 2 * left, channels)
        padded = workspace.buffer(shape, x_THWC)
        inside = padded[:, top : top + height, left : left + width]
        past = memory.past(self, (height, width, channels), x_THWC)
        inside[:PAST] = past
        inside[PAST:] = x_THWC
        past.copy_(inside[frames:])
        out = F.conv3d(_channels_second(padded), self.weight, self.bias)
        return _channels_last(out)


class PointConv(nn.Module):
    """A convolution of kernel 1, which is a matrix; `kernel_dims` is how the original writes its weights."""

    def __init__(self, inputs: int, outputs: int, *, kernel_dims: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *[1] * kernel_dims))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight.flatten(1).data)

    def forward(self, x_THWC: Tensor) -> Tensor:
        return F.linear(x_THWC, self.weight.flatten(1), self.bias)


class VaeNorm(nn.Module):
    """Divide by the root mean square over channels; no statistics in space or time."""

    def __init__(self, channels: int, *, dims: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels, *[1] * dims))

    def forward(self, x_THWC: Tensor) -> Tensor:
        return F.rms_norm(x_THWC, x_THWC.shape[-1:], self.gamma.flatten(), eps=1e-12)


class VaeResidualBlock(nn.Module):
    """Two causal convolutions; `residual` has the original's numbers, of which some hold no weights."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            VaeNorm(inputs, dims=3), nn.SiLU(), CausalConv3d(inputs, outputs, 3),
            VaeNorm(outputs, dims=3), nn.SiLU(), nn.Identity(), CausalConv3d(outputs, outputs, 3),
        )  # fmt: skip
        self.shortcut = PointConv(inputs, outputs, kernel_dims=3) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, memory: VaeMemory, workspace: Workspace) -> Tensor:
        norm1, _, conv1, norm2, _, _, conv2 = self.residual
        h = conv1(F.silu(norm1(x)), memory, workspace)
        h = conv2(F.silu(norm2(h)), memory, workspace)
        out: Tensor = self.shortcut(x) + h
        return out


class AttentionBlock(nn.Module):
    """Every place of a frame attends to all places of that frame, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = VaeNorm(channels, dims=2)
        self.to_qkv = PointConv(channels, 3 * channels, kernel_dims=2)
        self.proj = PointConv(channels, channels, kernel_dims=2)

    def forward(self, x: Tensor, memory: VaeMemory, workspace: Workspace) -> Tensor:
        del memory, workspace
        q, k, v = self.to_qkv(self.norm(x)).flatten(1, 2).chunk(3, dim=-1)
        gathered = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        out: Tensor = x + self.proj(gathered[:, 0].unflatten(1, x.shape[1:3]))
        return out


class Upsample(nn.Module):
    """Twice the size, half the channels; with `in_time` also twice the frames, but for the first latent."""

    def __init__(self, channels: int, *, in_time: bool) -> None:
        super().__init__()
        self.resample = nn.Sequential(nn.Identity(), nn.Conv2d(channels, channels // 2, 3))
        if in_time:
            self.time_conv = CausalConv3d(channels, 2 * channels, (PAST + 1, 1, 1))
        self.in_time = in_time

    def forward(self, x: Tensor, memory: VaeMemory, workspace: Workspace) -> Tensor:
        if self.in_time and memory.latents:
            x = self.time_conv(x, memory, workspace).unflatten(-1, (2, -1)).movedim(-2, 1).flatten(0, 1)
        frames, height, width, channels = x.shape
        padded = workspace.buffer((frames, 2 * height + 2, 2 * width + 2, channels), x)
        inside = padded[:, 1:-1, 1:-1].unflatten(2, (width, 2)).unflatten(1, (height, 2))
        inside.copy_(x[:, :, None, :, None])
        conv = self.resample[1]
        assert isinstance(conv, nn.Conv2d)
        out = F.conv2d(padded.permute(0, 3, 1, 2), conv.weight, conv.bias)
        return out.permute(0, 2, 3, 1)


class _Stages(nn.Module):
    """All but the first matrix, under the name that the original has for them."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        widths = [config.dim * times for times in (config.multipliers[-1], *config.multipliers[::-1])]
        self.conv1 = CausalConv3d(config.latent_channels, widths[0], 3)
        self.middle = nn.Sequential(
            VaeResidualBlock(widths[0], widths[0]),
            AttentionBlock(widths[0]),
            VaeResidualBlock(widths[0], widths[0]),
        )
        stages: list[nn.Module] = []
        for stage, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            first = inputs if stage == 0 else inputs // 2
            stages += [
                VaeResidualBlock(outputs if number else first, outputs)
                for number in range(config.residual_blocks + 1)
            ]
            if stage < len(widths) - 2:
                stages.append(Upsample(outputs, in_time=stage < 2))
        self.upsamples = nn.Sequential(*stages)
        self.head = nn.Sequential(VaeNorm(widths[-1], dims=3), nn.SiLU(), CausalConv3d(widths[-1], 3, 3))

    def forward(self, x: Tensor, memory: VaeMemory, workspace: Workspace) -> Tensor:
        x = self.conv1(x, memory, workspace)
        for stage in (*self.middle, *self.upsamples):
            x = stage(x, memory, workspace)
        norm, _, conv = self.head
        frames: Tensor = conv(F.silu(norm(x)), memory, workspace)
        return frames


class WanVaeDecoder(nn.Module):
    """From latents to frames; `state_dict` has the original's names, without those of its encoder."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.conv2 = PointConv(config.latent_channels, config.latent_channels, kernel_dims=3)
        self.decoder = _Stages(config)

    def decode(self, latent: Tensor, memory: VaeMemory, workspace: Workspace) -> Tensor:
        """The next latent of a film, [C, H, W], to frames [1 or 4, 8H, 8W, 3]; not clamped to [-1, 1]."""
        x = self.conv2(latent.permute(1, 2, 0)[None])
        frames: Tensor = self.decoder(x, memory, workspace)
        memory.latents += 1
        return frames


def _channels_second(x_THWC: Tensor) -> Tensor:
    return x_THWC.permute(3, 0, 1, 2)[None]


def _channels_last(x_1CTHW: Tensor) -> Tensor:
    return x_1CTHW[0].permute(1, 2, 3, 0)

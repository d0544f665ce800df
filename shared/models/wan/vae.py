"""The decoder of Wan 2.1's VAE as a stream: one latent in, one frame or four out, whatever came before.

Architecture and weight names: Wan 2.1 (github.com/Wan-Video/Wan2.1, `wan/modules/vae.py`). The first latent
gives one frame and passes by the convolutions over time between resolutions; every other latent gives four.

A causal convolution over three frames is three convolutions over one: for its own output, for the next and
for the one after. So every frame is read once, when it comes, by one convolution over pictures; what it adds
to the two outputs that follow is all that a stream remembers (`VaeMemory`, which the caller owns, one for
each film). Nothing is padded, joined or read again, and convolutions over pictures take less time than those
over frames, on CPUs by a fifth to a half. Weights live in the modules.

Tensors lie as T frames, H height, W width, C channels, so that a norm over channels is one over neighbours in
memory, and convolutions get what they call channels-last.
"""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.tables import require_positive

TAPS = 3  # frames that a causal convolution sees: its own and the two before


@dataclass(frozen=True, kw_only=True, slots=True)
class VaeConfig:
    """Sizes; those of `Wan2.1_VAE.pth` by default. `multipliers` are of `dim`, from full resolution down."""

    dim: int = 96
    multipliers: tuple[int, int, int, int] = (1, 2, 4, 4)
    residual_blocks: int = 2
    latent_channels: int = 16

    def __post_init__(self) -> None:
        require_positive(self, "vae")


class VaeMemory:
    """What one film leaves behind in the decoder: what its last frames add to the next two."""

    def __init__(self) -> None:
        self.latents = 0
        """That were decoded so far."""
        self._ahead: dict[nn.Module, Tensor] = {}

    def ahead(self, convolution: nn.Module, like: Tensor) -> Tensor:
        """[2, H, W, C]: parts of the next output and of the one after it; zero before the first frame."""
        if convolution not in self._ahead:
            self._ahead[convolution] = like.new_zeros((TAPS - 1, *like.shape[1:]))
        return self._ahead[convolution]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return sum(ahead.nbytes for ahead in self._ahead.values())


class CausalConv3d(nn.Conv3d):
    """A convolution over three frames that looks back in time and never ahead. For inference alone."""

    _laid_out: Tensor | None = None

    def forward(self, x_THWC: Tensor, memory: VaeMemory) -> Tensor:  # type: ignore[override]
        """The frames that follow those that the memory is of; same height and width in and out."""
        after_next, after, now = self._by_tap(x_THWC).chunk(TAPS, dim=-1)
        ahead = memory.ahead(self, now)
        out = now if self.bias is None else now + self.bias
        if len(x_THWC) == 1:
            out = out + ahead[:1]
            ahead[0] = after[0] + ahead[1]
        else:
            out[: TAPS - 1] += ahead
            out[1:] += after[:-1]
            out[2:] += after_next[:-2]
            ahead[0] = after[-1] + after_next[-2]
        ahead[1] = after_next[-1]
        return out

    def _by_tap(self, x_THWC: Tensor) -> Tensor:
        """[T, H, W, 3 C]: what each frame adds two frames later, to the next, and to its own output."""
        weight = self._weight_by_tap()
        if weight.ndim == 2:
            return F.linear(x_THWC, weight)
        padding = weight.shape[-1] // 2
        return F.conv2d(x_THWC.permute(0, 3, 1, 2), weight, padding=padding).permute(0, 2, 3, 1)

    def _weight_by_tap(self) -> Tensor:
        """The weight as [3 O, C, rows, columns], or [3 O, C] without rows; laid out at the first call."""
        known = self._laid_out
        if known is None or known.device != self.weight.device or known.dtype != self.weight.dtype:
            weight = self.weight.detach().permute(2, 0, 1, 3, 4).flatten(0, 1)
            pointwise = weight.shape[-1] == 1
            known = weight.flatten(1) if pointwise else weight.contiguous(memory_format=torch.channels_last)
            self._laid_out = known
        return known


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

    def forward(self, x: Tensor, memory: VaeMemory) -> Tensor:
        norm1, _, conv1, norm2, _, _, conv2 = self.residual
        h = conv1(F.silu(norm1(x)), memory)
        h = conv2(F.silu(norm2(h)), memory)
        out: Tensor = self.shortcut(x) + h
        return out


class AttentionBlock(nn.Module):
    """Every place of a frame attends to all places of that frame, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = VaeNorm(channels, dims=2)
        self.to_qkv = PointConv(channels, 3 * channels, kernel_dims=2)
        self.proj = PointConv(channels, channels, kernel_dims=2)

    def forward(self, x: Tensor, memory: VaeMemory) -> Tensor:
        del memory
        q, k, v = self.to_qkv(self.norm(x)).flatten(1, 2).chunk(3, dim=-1)
        gathered = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        out: Tensor = x + self.proj(gathered[:, 0].unflatten(1, x.shape[1:3]))
        return out


class Upsample(nn.Module):
    """Twice the size, half the channels; with `in_time` also twice the frames, but for the first latent."""

    def __init__(self, channels: int, *, in_time: bool) -> None:
        super().__init__()
        self.resample = nn.Sequential(nn.Identity(), nn.Conv2d(channels, channels // 2, 3, padding=1))
        if in_time:
            self.time_conv = CausalConv3d(channels, 2 * channels, (TAPS, 1, 1))
        self.in_time = in_time

    def forward(self, x: Tensor, memory: VaeMemory) -> Tensor:
        if self.in_time and memory.latents:
            x = self.time_conv(x, memory).unflatten(-1, (2, -1)).movedim(-2, 1).flatten(0, 1)
        large = x.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
        conv = self.resample[1]
        assert isinstance(conv, nn.Conv2d)
        out: Tensor = conv(large.permute(0, 3, 1, 2))
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

    def forward(self, x: Tensor, memory: VaeMemory) -> Tensor:
        x = self.conv1(x, memory)
        for stage in (*self.middle, *self.upsamples):
            x = stage(x, memory)
        norm, _, conv = self.head
        frames: Tensor = conv(F.silu(norm(x)), memory)
        return frames


class WanVaeDecoder(nn.Module):
    """From latents to frames; `state_dict` has the original's names, without those of its encoder."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.conv2 = PointConv(config.latent_channels, config.latent_channels, kernel_dims=3)
        self.decoder = _Stages(config)

    def decode(self, latent: Tensor, memory: VaeMemory) -> Tensor:
        """The next latent of a film, [C, H, W], to frames [1 or 4, 8H, 8W, 3]; not clamped to [-1, 1]."""
        x = self.conv2(latent.permute(1, 2, 0)[None])
        frames: Tensor = self.decoder(x, memory)
        memory.latents += 1
        return frames

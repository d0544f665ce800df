"""The small video decoder that stands in for Wan's own: TAEHV's architecture and weight names.

Source of architecture and names: github.com/madebyollin/taehv (MIT), whose file for Wan 2.1 is `taew2_1.pth`.
Two-dimensional convolutions on single frames; time is mixed by `MemBlock`, which sees the frame before, and
changed in rate by `TGrow`. T latents decode to 1 + 4(T - 1) frames, eight times as wide and high.

Weights live in the modules; what a stream remembers between two latents is a `TaehvMemory`, which the caller
owns, one for each film. Any number of latents may go through at a time, with the same result.

Shape suffixes: F frames, C channels, H W height and width. Frames of one clip lie in the batch dim; `clips`
says how many clips that are, one after the other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.tables import require_positive

MEM_BLOCKS = 3  # at each resolution
TIME_SCALE = 4  # frames of one latent
SPACE_SCALE = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class TaehvConfig:
    """Sizes; those of `taew2_1.pth` by default. `decoder` is its channels from the latent's resolution up."""

    latent_channels: int = 16
    decoder: tuple[int, int, int, int] = (256, 128, 64, 64)

    def __post_init__(self) -> None:
        require_positive(self, "taehv")


def conv3(inputs: int, outputs: int, *, bias: bool = True) -> nn.Conv2d:
    """A 3 x 3 convolution that keeps the size."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)


class TaehvMemory:
    """What one film leaves behind in the decoder: what its last frame adds to the next, by `MemBlock`."""

    def __init__(self) -> None:
        self.latents = 0
        """That were decoded so far."""
        self._parts: dict[nn.Module, Tensor] = {}

    def part(self, block: nn.Module, like: Tensor) -> Tensor:
        """[1, C, H, W], zero before the first frame."""
        if block not in self._parts:
            self._parts[block] = torch.zeros_like(like)
        return self._parts[block]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return sum(part.nbytes for part in self._parts.values())


class Clamp(nn.Module):
    """Keeps latents within ±3, softly."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / 3) * 3


class MemBlock(nn.Module):
    """Three convolutions on a frame and the one before it, and a way past them.

    Published as a convolution of both frames' channels side by side. Here each frame is read once, for itself
    and for the frame after it, so that nothing is put together and the memory is what the next frame adds.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            conv3(2 * channels, channels),
            nn.ReLU(),
            conv3(channels, channels),
            nn.ReLU(),
            conv3(channels, channels),
        )
        self.channels = channels

    def forward(self, x_FCHW: Tensor, clips: int, memory: TaehvMemory | None = None) -> Tensor:
        """Same shape in and out. With a `memory`, which is of one clip, the frames go on from its last."""
        now, after = self._read(x_FCHW).unflatten(0, (clips, -1)).chunk(2, dim=2)
        if memory is None:
            heard = now + F.pad(after[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
        else:
            part = memory.part(self, after[:, -1])
            heard = now.clone()
            heard[:, 0] += part
            heard[:, 1:] += after[:, :-1]
            part.copy_(after[:, -1])
        return F.relu(self.conv[1:](heard.flatten(0, 1)) + x_FCHW)

    def _read(self, x_FCHW: Tensor) -> Tensor:
        """[F, 2C, H, W]: what each frame says for itself, and for the frame after it."""
        first, channels = self.conv[0], self.channels
        assert isinstance(first, nn.Conv2d)
        assert first.bias is not None
        both = torch.cat([first.weight[:, :channels], first.weight[:, channels:]])
        bias = torch.cat([first.bias, torch.zeros_like(first.bias)])
        return F.conv2d(x_FCHW, both, bias, padding=1)


class TGrow(nn.Module):
    """One frame to `stride`."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(channels, channels * stride, 1, bias=False)

    def forward(self, x_FCHW: Tensor) -> Tensor:
        out: Tensor = self.conv(x_FCHW).reshape(-1, x_FCHW.shape[1], *x_FCHW.shape[2:])
        return out


class TaehvDecoder(nn.Sequential):
    """Latents to frames. Names as in the published file."""

    def __init__(self, config: TaehvConfig) -> None:
        stages: list[nn.Module] = [Clamp(), conv3(config.latent_channels, config.decoder[0]), nn.ReLU()]
        for narrow, wide, stride in zip(config.decoder[1:], config.decoder[:-1], (1, 2, 2), strict=True):
            stages += [MemBlock(wide) for _ in range(MEM_BLOCKS)]
            stages += [nn.Upsample(scale_factor=2), TGrow(wide, stride), conv3(wide, narrow, bias=False)]
        super().__init__(*stages, nn.ReLU(), conv3(config.decoder[-1], 3))

    def decode_clips(self, latents: Tensor) -> Tensor:
        """Whole clips [B, T, C, H, W] to frames [B, 1 + 4(T - 1), 3, 8H, 8W], not clamped to [0, 1]."""
        frames = self._run(latents.flatten(0, 1), len(latents), None)
        out: Tensor = frames.unflatten(0, (len(latents), -1))[:, TIME_SCALE - 1 :]
        return out

    def decode(self, latent: Tensor, memory: TaehvMemory) -> Tensor:
        """The next latent of a film, [C, H, W], to frames [1 or 4, 3, 8H, 8W]; not clamped to [0, 1]."""
        frames = self._run(latent[None], 1, memory)
        memory.latents += 1
        return frames[TIME_SCALE - 1 :] if memory.latents == 1 else frames

    def _run(self, x_FCHW: Tensor, clips: int, memory: TaehvMemory | None) -> Tensor:
        for stage in self:
            x_FCHW = stage(x_FCHW, clips, memory) if isinstance(stage, MemBlock) else stage(x_FCHW)
        return x_FCHW

"""The small video decoder that stands in for Wan's own: TAEHV's architecture and weight names.

Source of architecture and names: github.com/madebyollin/taehv (MIT), whose file for Wan 2.1 is `taew2_1.pth`.
Two-dimensional convolutions on single frames; time is mixed by `MemBlock`, which sees the frame before, and
changed in rate by `TPool` and `TGrow`. T latents decode to 1 + 4(T - 1) frames, eight times as wide and high.

Weights live in the modules; what a stream remembers between two latents is a list of tensors that the caller
owns (`new_state`). Any number of frames may go through at a time, with the same result.

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
    encoder: int = 64
    decoder: tuple[int, int, int, int] = (256, 128, 64, 64)

    def __post_init__(self) -> None:
        require_positive(self, "taehv")


def conv3(inputs: int, outputs: int, *, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    """A 3 x 3 convolution that keeps the size, or halves it with `stride` 2."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride, bias=bias)


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
            conv3(2 * channels, channels), nn.ReLU(), conv3(channels, channels), nn.ReLU(), conv3(channels, channels)
        )
        self.channels = channels

    def forward(self, x_FCHW: Tensor, clips: int, memory: Tensor | None) -> Tensor:
        """Same shape in and out; `memory` [clips, C, H, W] is read, and then holds the last frame's part."""
        first, channels = self.conv[0], self.channels
        both = torch.cat([first.weight[:, :channels], first.weight[:, channels:]])
        now, after = F.conv2d(x_FCHW, both, padding=1).unflatten(0, (clips, -1)).chunk(2, dim=2)
        now = now + first.bias[:, None, None]
        if memory is None:
            before = F.pad(after[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
            read = now + before
        else:
            read = now
            read[:, 0] += memory
            read[:, 1:] += after[:, :-1]
            memory.copy_(after[:, -1])
        return F.relu(self.conv[1:](read.flatten(0, 1)) + x_FCHW)


class TPool(nn.Module):
    """`stride` frames to one."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(channels * stride, channels, 1, bias=False)

    def forward(self, x_FCHW: Tensor) -> Tensor:
        return self.conv(x_FCHW.reshape(-1, self.stride * x_FCHW.shape[1], *x_FCHW.shape[2:]))


class TGrow(nn.Module):
    """One frame to `stride`."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(channels, channels * stride, 1, bias=False)

    def forward(self, x_FCHW: Tensor) -> Tensor:
        return self.conv(x_FCHW).reshape(-1, x_FCHW.shape[1], *x_FCHW.shape[2:])


class TaehvEncoder(nn.Sequential):
    """Frames to latents: what the pocket model is trained on. Names as in the published file."""

    def __init__(self, config: TaehvConfig) -> None:
        width = config.encoder
        stages: list[nn.Module] = [conv3(3, width), nn.ReLU()]
        for stride in (2, 2, 1):
            stages += [TPool(width, stride), conv3(width, width, stride=2, bias=False)]
            stages += [MemBlock(width) for _ in range(MEM_BLOCKS)]
        super().__init__(*stages, conv3(width, config.latent_channels))

    def encode(self, frames: Tensor) -> Tensor:
        """Clips [B, 1 + 4(T - 1), 3, H, W] in [0, 1] to latents [B, T, C, H/8, W/8].

        The first frame is seen four times, so that latent t ends with frame 4t as Wan's does.
        """
        padded = torch.cat([frames[:, :1].expand(-1, TIME_SCALE - 1, -1, -1, -1), frames], dim=1)
        clips, x = len(frames), padded.flatten(0, 1)
        for stage in self:
            x = stage(x, clips, None) if isinstance(stage, MemBlock) else stage(x)
        return x.unflatten(0, (clips, -1))


class TaehvDecoder(nn.Sequential):
    """Latents to frames. Names as in the published file."""

    def __init__(self, config: TaehvConfig) -> None:
        stages: list[nn.Module] = [Clamp(), conv3(config.latent_channels, config.decoder[0]), nn.ReLU()]
        for narrow, wide, stride in zip(config.decoder[1:], config.decoder[:-1], (1, 2, 2), strict=True):
            stages += [MemBlock(wide) for _ in range(MEM_BLOCKS)]
            stages += [nn.Upsample(scale_factor=2), TGrow(wide, stride), conv3(wide, narrow, bias=False)]
        super().__init__(*stages, nn.ReLU(), conv3(config.decoder[-1], 3))

    def decode_raw(self, latents: Tensor) -> Tensor:
        """Whole clips [B, T, C, H, W] to frames [B, 1 + 4(T - 1), 3, 8H, 8W], not clamped to [0, 1]."""
        clips, x = len(latents), latents.flatten(0, 1)
        for stage in self:
            x = stage(x, clips, None) if isinstance(stage, MemBlock) else stage(x)
        return x.unflatten(0, (clips, -1))[:, TIME_SCALE - 1 :]

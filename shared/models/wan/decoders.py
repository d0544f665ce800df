"""Frames of latents as a stream: both decoders behind one interface; a film's memory is its caller's."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shared.devices import Device
from shared.models.wan.config import DecoderKind, WanConfig
from shared.models.wan.taehv import TaehvDecoder, TaehvMemory
from shared.models.wan.vae import VaeMemory, WanVaeDecoder

# What Wan's latents are normalised with, per channel (Wan 2.1, `wan/modules/vae.py`).
WAN_MEAN = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
)  # fmt: skip
WAN_STD = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
)  # fmt: skip


class LatentScale(nn.Module):
    """From latents as they are denoised, of unit deviation, to those that a decoder takes."""

    mean_C: Tensor
    std_C: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean_C", torch.zeros(channels))
        self.register_buffer("std_C", torch.ones(channels))

    def set(self, mean_C: Tensor, std_C: Tensor) -> None:
        self.mean_C.copy_(mean_C)
        self.std_C.copy_(std_C)

    def normalised(self, latents: Tensor) -> Tensor:
        """The other way, [..., C, H, W]."""
        return (latents - self.mean_C[:, None, None]) / self.std_C[:, None, None]

    def forward(self, latents: Tensor) -> Tensor:
        return latents * self.std_C[:, None, None] + self.mean_C[:, None, None]


class StreamDecoder(Protocol):
    """Decodes one latent of a film at a time."""

    def new_memory(self) -> Any:
        """What the decoder remembers of a scene, at its beginning; empty before the first latent."""

    def decode(self, latent: Tensor, memory: Any) -> Tensor:
        """The next latent [C, H, W], of unit deviation, to frames uint8 [1 or 4, 8H, 8W, 3]."""


class WanStreamDecoder:
    """Wan's own decoder."""

    def __init__(self, network: WanVaeDecoder, scale: LatentScale, device: Device) -> None:
        self._network = device.optimised(network)
        self._scale = scale.to(device.torch)
        self._dtype = device.dtype

    def new_memory(self) -> VaeMemory:
        return VaeMemory()

    @torch.inference_mode()
    def decode(self, latent: Tensor, memory: VaeMemory) -> Tensor:
        scaled = self._scale(latent.float()).to(self._dtype)
        frames = self._network.decode(scaled, memory)
        return frames.float().add_(1).mul_(127.5).round_().clamp_(0, 255).byte()


class TaehvStreamDecoder:
    """The small one."""

    def __init__(self, network: TaehvDecoder, scale: LatentScale, device: Device) -> None:
        self._network = device.optimised(network)
        self._scale = scale.to(device.torch)
        self._dtype = device.dtype

    def new_memory(self) -> TaehvMemory:
        return TaehvMemory()

    @torch.inference_mode()
    def decode(self, latent: Tensor, memory: TaehvMemory) -> Tensor:
        scaled = self._scale(latent.float()).to(self._dtype)
        frames_FCHW = self._network.decode(scaled, memory)
        return frames_FCHW.permute(0, 2, 3, 1).float().mul_(255).round_().clamp_(0, 255).byte()


def new_decoder_network(config: WanConfig) -> WanVaeDecoder | TaehvDecoder:
    """The network of the decoder that a config asks for."""
    return WanVaeDecoder(config.vae) if config.decoder is DecoderKind.WAN else TaehvDecoder(config.taehv)


def stream_decoder(
    network: WanVaeDecoder | TaehvDecoder, scale: LatentScale, device: Device
) -> StreamDecoder:
    """The stream around a network that is loaded."""
    if isinstance(network, WanVaeDecoder):
        return WanStreamDecoder(network, scale, device)
    return TaehvStreamDecoder(network, scale, device)

"""All weights of a pocket model, as one checkpoint holds them, and their form for inference."""

from pathlib import Path

import torch
from torch import nn

from shared.checkpoint import config_digest, load_weights
from shared.devices import Device
from shared.models.audio_codec import AudioCodec
from shared.models.family import Role
from shared.models.onednn import pack
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.pocket.speech.pointer import PhoneTimer
from shared.models.tensor_parallel import ShardSpec, shard
from shared.models.video_codec import VideoCodec

RANDOM_SEED = 20260629
HEAD_STD = 0.02


class PocketWeights(nn.Module):
    """Everything that is trained."""

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        self.network = StreamerNetwork(config)
        self.timer = PhoneTimer()
        self.audio = AudioCodec(config.audio)
        self.video = VideoCodec(config.video)


def load_pocket(
    config: PocketConfig, folder: Path | None, device: Device, role: Role, share: ShardSpec
) -> tuple[PocketWeights, str]:
    """Weights for inference in a role, and the digest of config, weights and number format.

    Without a `folder` all are random, of a fixed seed. On a CPU layers are packed, and compute in the
    device's dtype.

    Raises:
        CheckpointError: see `load_weights`.
        DeviceError: there is no memory for them.
    """
    towers = config.transformer.numbers + config.listening_tower().numbers  # the rest is small beside them
    device.require(4 * towers, "the weights")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_SEED)
        weights = PocketWeights(config)
        for head in (weights.network.picture_out, weights.network.sound_out):
            # Training begins with heads at zero; random weights shall show what the towers do.
            nn.init.normal_(head.weight, std=HEAD_STD)
    digest = config_digest(config)
    if folder is not None:
        digest = load_weights(weights, folder, digest)
    weights.eval().requires_grad_(False)
    shard(weights.network.transformer, share)
    _leave_out(weights, role)
    if device.kind == "cpu":
        # Not the timer: from its chances durations are drawn, and they shall not depend on the number format.
        for name, part in weights.named_children():
            if name != "timer":
                pack(part, device.dtype)
    else:
        _settle(weights, device)
    return weights, f"{digest}-{str(device.dtype).removeprefix('torch.')}"


def _leave_out(weights: PocketWeights, role: Role) -> None:
    """Free what a process of this role never runs."""
    network, video = weights.network, weights.video
    match role:
        case Role.PERFORMER:
            del weights.audio, weights.video, weights.timer, network.listener
        case Role.THINKER:  # users are not coded, and velocities are the Performer's
            del weights.audio.encoder, network.picture_out, network.sound_out
            del video.read, video.down_blocks, video.downs, video.encoder_mix, video.to_latent


def _settle(weights: PocketWeights, device: Device) -> None:
    """Towers compute in the device's dtype, what goes in and comes out of them stays float32."""
    weights.to(device.torch)
    network = weights.network
    network.transformer = device.optimised(network.transformer)
    if hasattr(network, "listener"):
        network.listener.transformer = device.optimised(network.listener.transformer)

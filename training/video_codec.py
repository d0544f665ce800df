"""Train the video codec on the agent's drawn face (docs/pocket-model.md has the recipe and its results)."""

import math

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shared.models.video_codec import VideoCodec, VideoCodecConfig
from training.data.faces.face import Pose, draw
from training.data.faces.motion import poses
from training.data.voices.agent import AgentUtterance
from training.loop import TrainConfig, train

CLIP_FRAMES = 8
KL_WEIGHT = 2e-4
# Boxes (top, bottom, left, right) in shares of the picture, and how much more they weigh.
MOUTH, EYES = (0.52, 0.76, 0.36, 0.64), (0.34, 0.56, 0.27, 0.73)
MOUTH_WEIGHT, EYES_WEIGHT = 4.0, 3.0


def box_slices(box: tuple[float, float, float, float], height: int, width: int) -> tuple[slice, slice]:
    """Rows and columns of a box given in shares of the picture."""
    top, bottom, left, right = box
    rows = slice(round(top * height), round(bottom * height))
    return rows, slice(round(left * width), round(right * width))


def to_tensor(frames: list[NDArray[np.uint8]]) -> Tensor:
    """Frames [H, W, 3] of 0..255 to one tensor [T, 3, H, W] in [-1, 1]."""
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).float() / 127.5 - 1


def random_pose(rng: np.random.Generator) -> Pose:
    """Any pose at all, so that the codec knows more than what speech shows."""
    one_sided = {"blink", "open", "wide", "round", "teeth", "tongue", "brow", "nod"}
    return Pose(
        **{name: rng.uniform(0 if name in one_sided else -1, 1) for name in Pose.__dataclass_fields__}
    )


def clip_of(utterance: AgentUtterance, frames: int, size: int, rng: np.random.Generator) -> Tensor:
    """A random piece of the face saying a sentence: [frames, 3, size, size]."""
    total = len(utterance.pcm) // 640 + 25
    chosen = poses(utterance.phones, total, rng)
    start = int(rng.integers(0, total - frames))
    return to_tensor([draw(pose, size) for pose in chosen[start : start + frames]])


def psnr_of(squared_error: float) -> float:
    """Peak signal to noise ratio in dB, for pictures in [-1, 1]."""
    return 10 * math.log10(4 / squared_error)


def encoder_parts(codec: VideoCodec) -> tuple[nn.Module, ...]:
    """All that a picture passes on its way to latents."""
    return codec.read, codec.down_blocks, codec.downs, codec.encoder_mix, codec.to_latent


def test_clips(utterances: list[AgentUtterance], size: int) -> Tensor:
    """Pieces of 16 frames of the face saying each sentence, always the same ones: [B, 16, 3, size, size]."""
    rng = np.random.default_rng(99)
    return torch.stack([clip_of(utterance, 16, size, rng) for utterance in utterances])


@torch.no_grad()
def reconstruct(codec: VideoCodec, real_BTCHW: Tensor) -> Tensor:
    """Encode and decode clips."""
    batch = len(real_BTCHW)
    z, _ = codec.encode(real_BTCHW, codec.init_state(batch))
    return codec.decode(z, codec.init_state(batch))[0]


def squared_errors(made: Tensor, real: Tensor) -> dict[str, float]:
    """Mean squared error, under the names of its PSNR, of the whole picture, of the mouth and of the eyes."""
    boxes = {"psnr": (0.0, 1.0, 0.0, 1.0), "psnr_mouth": MOUTH, "psnr_eyes": EYES}
    cuts = {name: (..., *box_slices(box, *real.shape[-2:])) for name, box in boxes.items()}
    return {name: float((made[cut] - real[cut]).square().mean()) for name, cut in cuts.items()}


def train_video_codec(
    config: TrainConfig,
    sizes: VideoCodecConfig,
    speech: list[AgentUtterance],
    held_out: list[AgentUtterance],
    *,
    batch: int,
    resume: bool,
    start: VideoCodec | None = None,
    frozen_encoder: VideoCodec | None = None,
) -> VideoCodec:
    """Train the codec from `start` or from nothing; or only the decoder of `frozen_encoder`.

    Pictures must be square.
    """
    torch.manual_seed(config.seed)
    codec = frozen_encoder or start or VideoCodec(sizes)
    for part in encoder_parts(codec):
        part.requires_grad_(frozen_encoder is None)
    weight = torch.ones(sizes.height, sizes.width, device=config.device)
    weight[box_slices(EYES, sizes.height, sizes.width)] = EYES_WEIGHT
    weight[box_slices(MOUTH, sizes.height, sizes.width)] = MOUTH_WEIGHT
    weight /= weight.mean()

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        clips = [
            clip_of(speech[rng.integers(len(speech))], CLIP_FRAMES, sizes.height, rng)
            for _ in range(batch - 1)
        ]
        clips.append(to_tensor([draw(random_pose(rng), sizes.height) for _ in range(CLIP_FRAMES)]))
        real = torch.stack(clips).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            mean, log_variance, _ = codec.encode_moments(real, codec.init_state(batch))
            mean, log_variance = mean.float(), log_variance.float().clamp(-12, 4)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            made, _ = codec.decode_raw(z, codec.init_state(batch))
        difference = (made.float() - real) * weight.sqrt()
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        return {
            "l1": (difference * weight.sqrt()).abs().mean(),
            "l2": 2 * difference.square().mean(),
            "kl": KL_WEIGHT * kl * sizes.latent_dim,
        }

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # the picture is overwritten each time
        assert isinstance(model, VideoCodec)
        real = test_clips(held_out[:8], sizes.height).to(config.device)
        made = reconstruct(model, real)
        # One column a clip: every fourth frame of the original, below them those of the codec.
        columns = (
            torch.cat([real[:6, ::4], made[:6, ::4]], dim=1)
            .permute(1, 3, 0, 4, 2)
            .flatten(2, 3)
            .flatten(0, 1)
        )
        picture = ((columns + 1) * 127.5).clamp(0, 255).byte().cpu().numpy()
        cv2.imwrite(str(config.folder / "sample.png"), picture[..., ::-1])
        return {name: psnr_of(error) for name, error in squared_errors(made, real).items()}

    average = train(config, codec, losses, evaluate, resume=resume)
    codec.load_state_dict(average)
    codec.eval()
    if frozen_encoder is None:
        measure_statistics(codec, speech)
    return codec


@torch.no_grad()
def measure_statistics(codec: VideoCodec, speech: list[AgentUtterance]) -> None:
    """Set latent mean and deviation; dims that carry nothing keep deviation 1 and so stay near 0."""
    rng = np.random.default_rng(7)
    means, variances = [], []
    for utterance in speech[:200]:
        clip = clip_of(utterance, 16, codec.config.height, rng)[None].to(codec.latent_mean_Z.device)
        mean, log_variance, _ = codec.encode_moments(clip, codec.init_state(1))
        means.append(mean.flatten(0, 2))
        variances.append(log_variance.flatten(0, 2).exp())
    mean = torch.cat(means)
    codec.latent_mean_Z.copy_(mean.mean(0))
    codec.latent_std_Z.copy_((mean.var(0) + torch.cat(variances).mean(0)).sqrt())

"""Train the pocket model's frames-to-latents encoder and its decoder, both of TAEHV's architecture."""

import math

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from shared.models.wan.taehv import TIME_SCALE, MemBlock, TaehvConfig, TaehvDecoder, TaehvEncoder
from training.film.scenes import HEIGHT, WIDTH, Film, Picture, random_prompt
from training.loop import TrainConfig, train

CROP = 64  # pixels: the network is convolutions alone, so what it learns on crops holds for whole pictures
CROP_LATENTS = 3
LATENT_NOISE = 0.15  # of latents within ±3: what the denoiser gets wrong by so much shall not show
LATENT_WEIGHT = 1e-3
TEST_LATENTS = 5


class Autoencoder(nn.Module):
    """Both halves."""

    def __init__(self, config: TaehvConfig) -> None:
        super().__init__()
        self.encoder = TaehvEncoder(config)
        self.decoder = TaehvDecoder(config)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        for module in self.modules():
            if isinstance(module, MemBlock):  # begins as little more than the way past its convolutions
                nn.init.kaiming_normal_(module.conv[-1].weight, a=10)
        with torch.no_grad():
            self.encoder[-1].weight *= 0.7
            self.decoder[-1].weight *= 0.1
            self.decoder[-1].bias += 0.5


def frames_of(latents: int) -> int:
    """Frames that so many latents stand for."""
    return 1 + TIME_SCALE * (latents - 1)


def to_tensor(frames: Picture) -> Tensor:
    """Pictures uint8 [..., H, W, 3] to [..., 3, H, W] in [0, 1]."""
    return torch.from_numpy(frames).movedim(-1, -3).float() / 255


def crop(rng: np.random.Generator) -> Picture:
    """A piece of a film in space and time: uint8 [frames, CROP, CROP, 3]."""
    film = Film(random_prompt(rng), int(rng.integers(2**31)))
    start, x, y = (int(rng.integers(high)) for high in (400, WIDTH - CROP + 1, HEIGHT - CROP + 1))
    return film.frames(frames_of(CROP_LATENTS), start)[:, y : y + CROP, x : x + CROP]


def whole_clips(count: int, latents: int, seed: int) -> Tensor:
    """Whole pictures of films that are never trained on: [count, frames, 3, H, W]."""
    rng = np.random.default_rng(seed)
    films = [Film(random_prompt(rng, judged=True), int(rng.integers(2**31))) for _ in range(count)]
    return to_tensor(np.stack([film.frames(frames_of(latents)) for film in films]))


def psnr(made: Tensor, real: Tensor) -> float:
    """Peak signal to noise ratio in dB of pictures in [0, 1]."""
    return -10 * math.log10(float((made.clamp(0, 1) - real).square().mean()))


def train_autoencoder(
    config: TrainConfig, sizes: TaehvConfig, *, batch: int, resume: bool, frozen_encoder: nn.Module | None = None
) -> Autoencoder:
    """Train both halves, or with `frozen_encoder` the decoder alone."""
    torch.manual_seed(config.seed)
    model = Autoencoder(sizes).to(memory_format=torch.channels_last)
    if frozen_encoder is not None:
        model.load_state_dict(frozen_encoder.state_dict())
        model.encoder.requires_grad_(requires_grad=False)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        real = to_tensor(np.stack([crop(rng) for _ in range(batch)])).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            latents = model.encoder.encode(real).float()
            noisy = latents + LATENT_NOISE * torch.randn_like(latents)
            made = model.decoder.decode_raw(noisy).float()
        difference = made - real
        return {
            "l1": difference.abs().mean(),
            "l2": 8 * difference.square().mean(),
            "size": LATENT_WEIGHT * latents.square().mean(),
        }

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # the picture is overwritten each time
        assert isinstance(model, Autoencoder)
        real = whole_clips(6, TEST_LATENTS, seed=1)
        latents = model.encoder.encode(real)
        made = model.decoder.decode_raw(latents)
        rows = torch.cat([real[:, -1], made[:, -1]], dim=-1).permute(0, 2, 3, 1).flatten(0, 1)
        picture = (rows * 255).clamp(0, 255).byte().numpy()
        cv2.imwrite(str(config.folder / "sample.png"), picture[..., ::-1])
        return {
            "psnr": psnr(made, real), "psnr_first": psnr(made[:, 0], real[:, 0]),
            "latent_std": float(latents.std()), "latent_mean": float(latents.mean()),
        }  # fmt: skip

    average = train(config, model, losses, evaluate, resume=resume)
    model.load_state_dict(average)
    return model.eval()

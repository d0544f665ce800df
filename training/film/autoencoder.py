"""Train the pocket model's frames-to-latents encoder and its decoder, both of TAEHV's architecture."""

import math
from functools import partial

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.video_codec import ResidualBlock
from shared.models.wan.layout import HEIGHT, WIDTH
from shared.models.wan.taehv import SPACE_SCALE, TIME_SCALE, MemBlock, TaehvConfig, TaehvDecoder, TGrow
from training.film.scenes import DrawnFilm, Picture, random_prompt
from training.loop import CHECKPOINT, TrainConfig, train
from training.optimizers import muon

CROP = 64  # pixels: the network is convolutions alone, so what it learns on crops holds for whole pictures
CROP_LATENTS = 3
AROUND_A_THING = 0.75
DETAIL_WEIGHT = 12.0
LATENT_NOISE = 0.08  # of latents within ±3: what the denoiser gets wrong by so much shall not show
LATENT_WEIGHT = 0.01
TEST_LATENTS = 5
ENCODER_WIDTH = 256
COMPONENTS = 64
LAST_STAGE = 22  # of the decoder
ENCODER_BLOCKS = 3
COMPONENT_FILMS = 96
COMPONENT_SAMPLES = 40_000


class PocketEncoder(nn.Module):
    """Frames to latents, each from its own four frames alone: what the pocket model is trained on.

    The first principal components of 8 x 8 pixels of four frames, and what a network on the coarse grid makes
    of them and of the next ones. The components are set once; the network adds nothing at first.
    """

    components: Tensor
    mean: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        pixels = TIME_SCALE * 3 * SPACE_SCALE**2
        self.register_buffer("components", torch.zeros(COMPONENTS, pixels))
        self.register_buffer("mean", torch.zeros(pixels))
        self.channels = channels
        self.read = nn.Conv2d(COMPONENTS, ENCODER_WIDTH, 1)
        self.blocks = nn.Sequential(*(ResidualBlock(ENCODER_WIDTH) for _ in range(ENCODER_BLOCKS)))
        self.write = nn.Conv2d(ENCODER_WIDTH, channels, 3, padding=1)
        nn.init.zeros_(self.write.weight)
        assert self.write.bias is not None
        nn.init.zeros_(self.write.bias)

    def forward(self, frames: Tensor) -> Tensor:
        """Clips [B, 1 + 4(T - 1), 3, H, W] in [0, 1] to latents [B, T, C, H/8, W/8].

        The first frame is seen four times, so that latent t ends with frame 4t, as Wan's does.
        """
        folded = fold(frames)
        pixels = (folded.flatten(0, 1) - self.mean[:, None, None]).movedim(1, -1)
        parts = F.linear(pixels, self.components).movedim(-1, 1)
        latents = parts[:, : self.channels] + self.write(self.blocks(self.read(parts)))
        out: Tensor = latents.unflatten(0, folded.shape[:2])
        return out

    @torch.no_grad()
    def set_components(self, frames: Tensor) -> None:
        """Find the principal components of these clips, the largest first, each of unit deviation."""
        pixels = fold(frames).movedim(2, -1).flatten(0, 3)
        self.mean.copy_(pixels.mean(0))
        spread = (pixels - self.mean).std(1)
        rows = torch.multinomial(spread + 0.02, min(len(pixels), COMPONENT_SAMPLES))  # plain ones count less
        centred = pixels[rows] - self.mean
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
        self.components.copy_((vectors / values.clamp_min(1e-8).sqrt()).flip(1)[:, :COMPONENTS].T)


def fold(frames: Tensor) -> Tensor:
    """Clips [B, 1 + 4(T - 1), 3, H, W] to [B, T, pixels, H/8, W/8]."""
    padded = torch.cat([frames[:, :1].expand(-1, TIME_SCALE - 1, -1, -1, -1), frames], dim=1)
    groups = padded.unflatten(1, (-1, TIME_SCALE)).flatten(2, 3)
    return F.pixel_unshuffle(groups, SPACE_SCALE)


class Autoencoder(nn.Module):
    """Both halves."""

    def __init__(self, config: TaehvConfig) -> None:
        super().__init__()
        self.encoder = PocketEncoder(config.latent_channels)
        self.decoder = TaehvDecoder(config)
        begin_linear(self.decoder)


@torch.no_grad()
def begin_linear(decoder: TaehvDecoder) -> None:
    """Set weights so that the network, for all its ReLUs, begins as a linear map (arXiv 1702.08591).

    Of a pair of channels one holds what the other holds with its sign turned: what a ReLU takes of one, the
    other still has. Without norms a network that does not begin so learns colours ten times more slowly.
    """
    convolutions = [m for m in decoder.modules() if isinstance(m, nn.Conv2d)]
    last = convolutions[-1]
    for conv in convolutions:
        if conv.bias is not None:
            conv.bias.zero_()
        outputs = 1 if conv is last else 2
        inputs = 1 if conv is convolutions[0] else 2
        rows, columns = conv.weight.shape[:2]
        core = torch.empty(rows // outputs, columns // inputs, *conv.weight.shape[2:])
        _set_kernel(core)
        _set_pairs(conv.weight, core, rows=outputs, columns=inputs)
    for stage in decoder:
        if isinstance(stage, TGrow):
            frames = torch.eye(stage.conv.in_channels).repeat(stage.stride, 1)
            stage.conv.weight.copy_(frames[:, :, None, None])
        elif isinstance(stage, MemBlock):
            first, *_, final = stage.conv
            assert isinstance(first, nn.Conv2d)
            assert isinstance(final, nn.Conv2d)
            final.weight.mul_(0.1)
            for frame in first.weight.chunk(2, dim=1):  # its own, and the one before: pairs lie within each
                core = torch.empty(len(frame) // 2, len(frame) // 2, *frame.shape[2:])
                _set_kernel(core)
                _set_pairs(frame, 0.7 * core, rows=2, columns=2)
    assert last.bias is not None
    last.weight.mul_(0.2)
    last.bias.fill_(0.5)


def _set_pairs(weight: Tensor, core: Tensor, *, rows: int, columns: int) -> None:
    """The same map for both halves, with the sign turned between them."""
    for row, row_part in enumerate(weight.chunk(rows)):
        for column, part in enumerate(row_part.chunk(columns, dim=1)):
            part.copy_(core * (-1) ** (row + column))


def _set_kernel(kernel: Tensor) -> None:
    """Mostly what is in the middle, turned; a little of what is around."""
    nn.init.normal_(kernel, std=0.3 / (kernel.shape[1] * kernel[0, 0].numel()) ** 0.5)
    middle = kernel.shape[-1] // 2
    turned = torch.empty(kernel.shape[:2])
    nn.init.orthogonal_(turned)
    kernel[:, :, middle, middle] += turned


def frames_of(latents: int) -> int:
    """Frames that so many latents stand for."""
    return 1 + TIME_SCALE * (latents - 1)


def to_tensor(frames: Picture) -> Tensor:
    """Pictures uint8 [..., H, W, 3] to [..., 3, H, W] in [0, 1]."""
    return torch.from_numpy(frames).movedim(-1, -3).float() / 255


def crop(rng: np.random.Generator) -> Picture:
    """A piece of a film in space and time, mostly around a thing: uint8 [frames, CROP, CROP, 3]."""
    film = DrawnFilm(random_prompt(rng), int(rng.integers(2**31)), varied=True)
    start, frames = int(rng.integers(400)), frames_of(CROP_LATENTS)
    x, y = (int(rng.integers(high)) for high in (WIDTH - CROP + 1, HEIGHT - CROP + 1))
    if rng.uniform() < AROUND_A_THING:
        pose = film.places(start + frames // 2)[0]
        x = int(np.clip(pose.x - rng.uniform(0.25, 0.75) * CROP, 0, WIDTH - CROP))
        y = int(np.clip(pose.y - rng.uniform(0.25, 0.75) * CROP, 0, HEIGHT - CROP))
    return film.frames(frames, start)[:, y : y + CROP, x : x + CROP]


def detail(real: Tensor) -> Tensor:
    """What pixels weigh, [..., 1, H, W]: those around edges more than plain ones; 1 on average."""
    plain = F.avg_pool2d(real.flatten(0, 1), 5, stride=1, padding=2, count_include_pad=False)
    edges = (real.flatten(0, 1) - plain).abs().mean(1, keepdim=True)
    weight = 1 + DETAIL_WEIGHT * F.max_pool2d(edges, 3, stride=1, padding=1)
    out: Tensor = (weight / weight.mean()).unflatten(0, real.shape[:2])
    return out


def whole_clips(count: int, latents: int, seed: int) -> Tensor:
    """Whole pictures of films that are never trained on: [count, frames, 3, H, W]."""
    rng = np.random.default_rng(seed)
    films = [
        DrawnFilm(random_prompt(rng, judged=True), int(rng.integers(2**31)), varied=True)
        for _ in range(count)
    ]
    return to_tensor(np.stack([film.frames(frames_of(latents)) for film in films]))


def psnr(made: Tensor, real: Tensor) -> float:
    """Peak signal to noise ratio in dB of pictures in [0, 1]."""
    return -10 * math.log10(float((made.clamp(0, 1) - real).square().mean()))


def _is_matrix(name: str) -> bool:
    """Which layers Muon trains: all but the last, and the one that is to begin with nothing."""
    return not name.endswith((f"decoder.{LAST_STAGE}", "encoder.write"))


def train_autoencoder(
    config: TrainConfig,
    sizes: TaehvConfig,
    *,
    batch: int,
    resume: bool,
    frozen_encoder: nn.Module | None = None,
) -> Autoencoder:
    """Train both halves, or with `frozen_encoder` the decoder alone."""
    torch.manual_seed(config.seed)
    model = Autoencoder(sizes)
    if not resume or not (config.folder / CHECKPOINT).exists():
        rng = np.random.default_rng(config.seed)
        clips = [
            DrawnFilm(random_prompt(rng), n, varied=True).frames(frames_of(3), 8 * n)
            for n in range(COMPONENT_FILMS)
        ]
        model.encoder.set_components(to_tensor(np.stack(clips)))
    if frozen_encoder is not None:
        model.load_state_dict(frozen_encoder.state_dict())
        model.encoder.requires_grad_(requires_grad=False)

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        real = to_tensor(np.stack([crop(rng) for _ in range(batch)])).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            latents = model.encoder(real).float()
            noisy = latents + LATENT_NOISE * torch.randn_like(latents)
            made = model.decoder.decode_clips(noisy).float()
        difference, weight = made - real, detail(real)
        return {
            "l1": (difference.abs() * weight).mean(),
            "l2": 8 * (difference.square() * weight).mean(),
            "size": LATENT_WEIGHT * latents.square().mean(),
        }

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # the picture is overwritten each time
        assert isinstance(model, Autoencoder)
        real = whole_clips(6, TEST_LATENTS, seed=1)
        latents = model.encoder(real)
        made = model.decoder.decode_clips(latents)
        rows = torch.cat([real[:, -1], made[:, -1]], dim=-1).permute(0, 2, 3, 1).flatten(0, 1)
        picture = (rows * 255).clamp(0, 255).byte().numpy()
        cv2.imwrite(str(config.folder / "sample.png"), picture[..., ::-1])
        return {
            "psnr": psnr(made, real), "psnr_first": psnr(made[:, 0], real[:, 0]),
            "latent_std": float(latents.std()), "latent_mean": float(latents.mean()),
        }  # fmt: skip

    average = train(config, model, losses, evaluate, resume=resume, optimizer=partial(muon, inner=_is_matrix))
    model.load_state_dict(average)
    return model.eval()

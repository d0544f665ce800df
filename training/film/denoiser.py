"""Train the pocket model's denoiser, with its text encoder, on latents of drawn films.

Diffusion forcing (arXiv 2407.01392): every block of a sequence has a noise level of its own and sees those
before it as they are, clean ones as the runtime's cache holds them. So one pass over a sequence trains all of
its blocks, and the network meets every mix of noise and context.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.wan.decoders import LatentScale
from shared.models.wan.dit import PATCH, TRAIN_TIMESTEPS, DiTBlock, DiTConfig, WanDiT, attention
from shared.models.wan.language import PocketPrompt
from shared.models.wan.layout import Start, raised
from shared.models.wan.pocket_text import PocketTextEncoder
from shared.models.wan.schedule import Solver, shifted
from shared.models.wan.taehv import TaehvDecoder
from training.film.autoencoder import PocketEncoder
from training.film.latents import LATENTS, LatentFilms, part_of, statistics
from training.loop import TrainConfig, train
from training.optimizers import muon

BLOCK = 3
SEQUENCE = 9  # latents that are trained on together
CLEAN = 0.3  # share of blocks that are only looked back at
SHIFT = 3.0  # of the noise levels, towards much noise
FIRST_WEIGHT = 1.5  # of a film's first block, which has nothing to look back at
FIRST_BLOCK_STEPS = (0, 2, 4)  # of every five, in which nothing else is trained on
CONTEXT_NOISE = 0.06  # at most, on clean blocks: what the runtime looks back at is not perfect either
MOST_PROMINENT = 5.0
MEASURED = 32  # films that it is watched with
SHOWN = 8  # films of a sample sheet
SETTLED_PARTS = 2  # from the beginning
STEPS_A_PART = 10  # and one more every so many steps, while others are still being made


class Denoiser(nn.Module):
    """The transformer and what reads its prompts."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.dit = WanDiT(config)
        self.text = PocketTextEncoder(config.text_dim)

    def initialise(self) -> None:
        """Begin with open gates and small branches, so that all layers act from the first step."""
        layers = self.dit.config.layers
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for block in self.dit.blocks:
            assert isinstance(block, DiTBlock)
            nn.init.zeros_(block.modulation)
            with torch.no_grad():
                block.modulation[:, [2, 5]] = 1.0
                for branch in (block.self_attn.o, block.cross_attn.o, block.ffn[2]):
                    branch.weight *= (2 * layers) ** -0.5
        projection = self.dit.time_projection[1]
        assert isinstance(projection, nn.Linear)
        nn.init.zeros_(projection.weight)
        nn.init.zeros_(self.dit.head.modulation)
        nn.init.zeros_(self.dit.head.head.weight)

    def flow(self, latents: Tensor, sigma_BF: Tensor, prompts: list[PocketPrompt]) -> Tensor:
        """The flow of whole sequences, of which each block sees itself and those before."""
        tokens = latents.shape[-2] * latents.shape[-1] // (PATCH[1] * PATCH[2]) * BLOCK

        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            ends = range(tokens, q.shape[2] + 1, tokens)
            blocks = [attention(q[:, :, end - tokens : end], k[:, :, :end], v[:, :, :end]) for end in ends]
            return torch.cat(blocks, dim=2)

        out: Tensor = self.dit(
            latents, sigma_BF * TRAIN_TIMESTEPS, self.dit.text_kv(self.text(prompts)), attend
        )
        return out


@dataclass(frozen=True, slots=True)
class _Batch:
    latents: Tensor  # [B, SEQUENCE, C, H, W], normalised
    prompts: list[PocketPrompt]
    layouts: list[list[Start]]
    begins: Tensor  # [B]: the sequence is the film's beginning


class _Data:
    """Sequences for every step, from the parts that are made by then."""

    def __init__(self, part: Callable[[int], LatentFilms], parts: int, scale: LatentScale, seed: int) -> None:
        self._part, self._parts, self._scale, self._seed = part, parts, scale, seed
        self._loaded: list[LatentFilms] = []

    def batch(self, step: int, size: int) -> _Batch:
        """Sequences from a film's beginning or middle; or three times as many first blocks alone."""
        rng = np.random.default_rng((self._seed, step))
        beginnings = step % 5 in FIRST_BLOCK_STEPS
        length, size = (BLOCK, 3 * size) if beginnings else (SEQUENCE, size)
        ready = min(self._parts, SETTLED_PARTS + step // STEPS_A_PART)
        while len(self._loaded) < ready:
            self._loaded.append(self._part(len(self._loaded)))
        latents, prompts, layouts, begins = [], [], [], []
        for _ in range(size):
            films = self._loaded[rng.integers(ready)]
            number = int(rng.integers(len(films.prompts)))
            start = 0 if beginnings else int(rng.choice(range(0, LATENTS - SEQUENCE + 1, BLOCK)))
            latents.append(films.latents[number, start : start + length].float())
            prompts.append(films.prompts[number])
            layouts.append(films.layouts[number])
            begins.append(start == 0)
        return _Batch(self._scale.normalised(torch.stack(latents)), prompts, layouts, torch.tensor(begins))


def train_denoiser(
    config: TrainConfig, sizes: DiTConfig, encoder: PocketEncoder, decoder: TaehvDecoder, folder: Path, *,
    parts: int, films: int, batch: int, resume: bool, start: nn.Module | None = None,
) -> Denoiser:  # fmt: skip
    """Train from `start` or from nothing on `parts` parts of `films` films, whose latents lie in `folder`."""
    torch.manual_seed(config.seed)
    model = Denoiser(sizes)
    model.initialise()
    if start is not None:
        model.load_state_dict(start.state_dict())

    def part(number: int) -> LatentFilms:
        return part_of(folder, encoder, number, films=films)

    scale = latent_scale(part, sizes)
    data = _Data(part, parts, scale, config.seed)
    judged = part_of(folder, encoder, 0, films=films, judged=True)
    rows, columns = judged.latents.shape[-2:]

    def losses(step: int) -> dict[str, Tensor]:
        sample = data.batch(step, batch)
        error, weight = _weighted_error(model, sample)
        return {"flow": (error * weight).sum() / weight.sum()}

    @torch.no_grad()
    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step
        assert isinstance(model, Denoiser)
        torch.manual_seed(0)
        latents = scale.normalised(judged.latents[:MEASURED, :SEQUENCE].float())
        begins = torch.ones(len(latents), dtype=torch.bool)
        sample = _Batch(latents, judged.prompts[:MEASURED], judged.layouts[:MEASURED], begins)
        error, weight = _weighted_error(model, sample)
        _write_sheet(model, judged, scale, decoder, grid=(rows, columns), path=config.folder / "sample.png")
        return {"judged_flow": float((error * weight).sum() / weight.sum())}

    average = train(config, model, losses, evaluate, resume=resume, optimizer=partial(muon, inner=_is_matrix))
    model.load_state_dict(average)
    return model.eval()


def latent_scale(part: Callable[[int], LatentFilms], sizes: DiTConfig) -> LatentScale:
    """What latents are normalised with: the statistics of the first parts."""
    scale = LatentScale(sizes.latent_channels)
    scale.set(*statistics(part(number) for number in range(SETTLED_PARTS)))
    return scale


def _is_matrix(name: str) -> bool:
    """Which layers Muon trains: the matrices of the blocks."""
    return ".blocks." in name


def _weighted_error(model: Denoiser, sample: _Batch) -> tuple[Tensor, Tensor]:
    """Squared error of the flow and what it weighs, both [B, F]."""
    clean = sample.latents
    size, blocks = len(clean), clean.shape[1] // BLOCK
    uniform = torch.rand(size, blocks)
    sigma = SHIFT * uniform / (1 + (SHIFT - 1) * uniform)
    only_seen = torch.rand(size, blocks) < CLEAN
    only_seen[:, -1] = False
    only_seen[:, 0] |= ~sample.begins  # a film's middle without its beginning can only be looked back at
    sigma = torch.where(only_seen, 0.0, sigma)
    disturbed = torch.where(only_seen, CONTEXT_NOISE * torch.rand(size, blocks), sigma)
    weight = torch.where(only_seen, 0.0, 1.0)
    weight[:, 0] *= FIRST_WEIGHT
    by_frame = [x.repeat_interleave(BLOCK, dim=1) for x in (sigma, disturbed, weight)]
    noise = torch.randn_like(clean)
    for row in sample.begins.nonzero().flatten().tolist():
        noise[row, :BLOCK] += raised(sample.layouts[row], *clean.shape[2:])
    noisy = torch.lerp(clean, noise, by_frame[1][..., None, None, None])
    with torch.autocast(clean.device.type, torch.bfloat16):
        flow = model.flow(noisy, by_frame[0], sample.prompts)
    squared = (flow.float() - (noise - clean)).square() * prominence(clean)
    return squared.mean((2, 3, 4)), by_frame[2]


def prominence(latents: Tensor) -> Tensor:
    """What places weigh, [B, F, 1, H, W], 1 on average: more where something moves or stands out.

    Things are small, and a loss over all places alike is mostly one over backgrounds.
    """
    in_time = (latents - latents.mean(1, keepdim=True)).square().mean(2, keepdim=True).sqrt()
    around = F.avg_pool2d(latents.flatten(0, 1), 5, stride=1, padding=2, count_include_pad=False)
    in_space = (latents - around.view_as(latents)).square().mean(2, keepdim=True).sqrt()
    contrast = in_time + 0.5 * in_space
    weight = (0.3 + contrast / contrast.mean((1, 3, 4), keepdim=True)).clamp(max=MOST_PROMINENT)
    return weight / weight.mean((1, 3, 4), keepdim=True)


@torch.no_grad()
def sample_films(
    model: Denoiser, prompts: list[PocketPrompt], layouts: list[list[Start]], grid: tuple[int, int], *,
    latents: int, steps: int, seed: int, solver: Solver = Solver.EULER, shift: float = SHIFT,
) -> Tensor:  # fmt: skip
    """Films of all prompts at once, without a cache: normalised latents [B, latents, C, H, W]."""
    torch.manual_seed(seed)
    rows, columns = grid
    channels = model.dit.config.latent_channels
    done = torch.zeros(len(prompts), 0, channels, rows, columns)
    times = [shifted(1 - n / steps, shift) for n in range(steps)] + [0.0]
    while done.shape[1] < latents:
        past = done[:, -(SEQUENCE - BLOCK) :]
        frames = past.shape[1] + BLOCK
        x = torch.randn(len(prompts), BLOCK, channels, rows, columns)
        if not past.shape[1]:
            x += torch.stack([raised(each, channels, rows, columns) for each in layouts])[:, None]
        for now, after in itertools.pairwise(times):
            sigma = torch.zeros(len(prompts), frames)
            sigma[:, -BLOCK:] = now
            with torch.autocast("cpu", torch.bfloat16):
                flow = model.flow(torch.cat([past, x], dim=1), sigma, prompts)[:, -BLOCK:].float()
            if solver is Solver.EULER:
                x = x + (after - now) * flow
            else:
                x = torch.lerp(x - now * flow, torch.randn_like(x), after)
        done = torch.cat([done, x], dim=1)
    return done


def _write_sheet(
    model: Denoiser, judged: LatentFilms, scale: LatentScale, decoder: TaehvDecoder, *,
    grid: tuple[int, int], path: Path,
) -> None:  # fmt: skip
    """Some frames of some films, one below the other, with their prompts above."""
    prompts = judged.prompts[:SHOWN]
    films = decoder.decode_clips(
        scale(sample_films(model, prompts, judged.layouts[:SHOWN], grid, latents=SEQUENCE, steps=4, seed=1))
    )
    rows = []
    for prompt, film in zip(prompts, films, strict=True):
        strip = torch.cat(list(film[[0, 4, 8, 16, 24, 32]]), dim=-1).permute(1, 2, 0)
        picture = (strip * 255).clamp(0, 255).byte().numpy()[..., ::-1].copy()
        cv2.putText(
            picture, prompt.words(), (3, 10), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (0, 0, 255), 1, cv2.LINE_AA
        )
        rows.append(picture)
    cv2.imwrite(str(path), np.concatenate(rows))

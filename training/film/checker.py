"""A small network that looks at a piece of a film and says what is in it: what judges the pocket model.

It is trained on drawn films, blurred and noisy as a decoder's may be, and never sees a film of the model.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.wan.language import SLOTS, PocketPrompt
from training.film.autoencoder import to_tensor
from training.film.scenes import DrawnFilm, Picture, random_prompt
from training.loop import TrainConfig, train

FRAMES, STRIDE = 8, 3  # every third of 22 frames: 1.4 s
SPAN = (FRAMES - 1) * STRIDE + 1
WIDTHS = (32, 64, 128, 192, 192)
WATCHED = 96  # clips that it is measured with while it trains


class FilmChecker(nn.Module):
    """From [B, FRAMES, 3, H, W] in [0, 1] to scores of every slot's values."""

    def __init__(self) -> None:
        super().__init__()
        channels, stages = 3 * FRAMES, []
        for number, width in enumerate(WIDTHS):
            kernel = 5 if number == 0 else 3
            stride = 1 if number == len(WIDTHS) - 1 else 2
            stages += [
                nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2),
                nn.GroupNorm(8, width),
                nn.SiLU(),
            ]
            channels = width
        self.stages = nn.Sequential(*stages)
        self.heads = nn.ModuleDict(
            {slot: nn.Linear(2 * channels, len(choices)) for slot, choices in SLOTS.items()}
        )

    def forward(self, clips: Tensor) -> dict[str, Tensor]:
        """Scores [B, values] by slot."""
        seen = self.stages(clips.flatten(1, 2) - 0.5).flatten(2).float()
        pooled = torch.cat([seen.mean(-1), seen.amax(-1)], dim=1)
        return {slot: head(pooled) for slot, head in self.heads.items()}

    @torch.no_grad()
    def read(self, frames: Picture) -> PocketPrompt:
        """What is seen in the first `SPAN` frames, uint8 [F, H, W, 3]."""
        return prompts_of(self(to_tensor(watched(frames))[None]))[0]


def watched(frames: Picture) -> Picture:
    """Those of the first `SPAN` frames that the network looks at."""
    return frames[:SPAN:STRIDE]


def prompts_of(scores: Mapping[str, Tensor]) -> list[PocketPrompt]:
    """The likeliest value of every slot."""
    best = {slot: scores[slot].argmax(-1).tolist() for slot in SLOTS}
    count = len(next(iter(best.values())))
    return [
        PocketPrompt(**{slot: list(kind)[best[slot][row]] for slot, kind in SLOTS.items()})
        for row in range(count)
    ]


def _clips(rng: np.random.Generator, count: int, *, judged: bool) -> tuple[Tensor, list[PocketPrompt]]:
    films = [
        DrawnFilm(random_prompt(rng, judged=judged), int(rng.integers(2**31)), varied=True)
        for _ in range(count)
    ]
    starts = rng.integers(0, 400, count)
    pictures = [
        np.stack([film.frame(int(start) + n) for n in range(0, SPAN, STRIDE)])
        for film, start in zip(films, starts, strict=True)
    ]
    return to_tensor(np.stack(pictures)), [film.prompt for film in films]


def _worsened(clips: Tensor) -> Tensor:
    """As a decoder may leave them: softer, a little off in colour, with noise."""
    flat = clips.flatten(0, 1)
    soft = F.avg_pool2d(flat, 3, stride=1, padding=1, count_include_pad=False).view_as(clips)
    share = torch.rand(len(clips), 1, 1, 1, 1)
    shift = 0.03 * torch.randn(len(clips), 1, 3, 1, 1)
    return (torch.lerp(clips, soft, share) + shift + 0.03 * torch.randn_like(clips)).clamp(0, 1)


def _targets(prompts: list[PocketPrompt], slot: str) -> Tensor:
    values = list(SLOTS[slot])
    return torch.tensor([values.index(getattr(prompt, slot)) for prompt in prompts])


def train_checker(config: TrainConfig, *, batch: int, resume: bool) -> FilmChecker:
    """Train it; combinations of words that the model is judged with are among those that it sees."""
    torch.manual_seed(config.seed)
    model = FilmChecker()

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        clips, prompts = _clips(rng, batch, judged=step % 4 == 0)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(_worsened(clips))
        return {slot: F.cross_entropy(scores[slot].float(), _targets(prompts, slot)) for slot in SLOTS}

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step
        torch.manual_seed(1)
        clips, prompts = _clips(np.random.default_rng(99), WATCHED, judged=True)
        scores = model(_worsened(clips))
        return {
            slot: float((scores[slot].argmax(-1) == _targets(prompts, slot)).float().mean()) for slot in SLOTS
        }

    model.load_state_dict(train(config, model, losses, evaluate, resume=resume))
    return model.eval()


def load_checker(path: Path) -> FilmChecker:
    """The trained one."""
    from safetensors.torch import load_file  # noqa: PLC0415 - of evaluation alone

    model = FilmChecker()
    model.load_state_dict(load_file(path))
    return model.eval()

"""The text encoder of `wan-pocket`: a prompt's seven choices and where things begin, one vector each."""

import math

import torch
from torch import Tensor, nn

from shared.models.wan.language import SLOTS, PocketPrompt
from shared.models.wan.layout import HEIGHT, MOST_THINGS, WIDTH, Start

TEXT_LEN = len(SLOTS) + MOST_THINGS
WAVES = 8  # by which a coordinate is told


class PocketTextEncoder(nn.Module):
    """Prompts and layouts to what the denoiser's cross-attention is made of, [B, TEXT_LEN, text dim]."""

    def __init__(self, text_dim: int) -> None:
        super().__init__()
        self.word = nn.ModuleDict(
            {slot: nn.Embedding(len(choices), text_dim) for slot, choices in SLOTS.items()}
        )
        self.place = nn.Linear(4 * WAVES + 3, text_dim)

    def forward(self, prompts: list[PocketPrompt], layouts: list[list[Start]]) -> Tensor:
        columns = [table(self._indices(prompts, slot)) for slot, table in self.word.items()]
        device = self.place.weight.device
        starts = torch.tensor(
            [[_features(each, n) for n in range(MOST_THINGS)] for each in layouts], device=device
        )
        places: Tensor = self.place(starts)
        return torch.cat([torch.stack(columns, dim=1), places], dim=1)

    def _indices(self, prompts: list[PocketPrompt], slot: str) -> Tensor:
        choices = list(SLOTS[slot])
        chosen = [choices.index(getattr(prompt, slot)) for prompt in prompts]
        return torch.tensor(chosen, device=self.place.weight.device)


def _features(layout: list[Start], number: int) -> list[float]:
    """Of thing `number`: waves over its coordinates, its phase as a turn, and whether it is there."""
    if number >= len(layout):
        return [0.0] * (4 * WAVES + 3)
    start = layout[number]
    angles = [
        math.pi * share * 2**wave / 2
        for share in (start.x / WIDTH, start.y / HEIGHT)
        for wave in range(WAVES)
    ]
    turn = 2 * math.pi * start.phase
    return [*map(math.sin, angles), *map(math.cos, angles), math.sin(turn), math.cos(turn), 1.0]

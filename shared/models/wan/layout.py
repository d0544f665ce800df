"""Where the things of a pocket film begin: apart from each other, drawn from its seed before it is denoised.

The noise that a film's first block begins as is raised around these places. To make up a layout and to draw
it are two tasks, and a small network that has only the second to learn draws better. Flow matching may begin
from any distribution (arXiv 2209.03003), as long as training and sampling begin from the same one.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shared.models.wan.language import Motion, Number, PocketPrompt, Size

WIDTH, HEIGHT = 160, 96
HILL, HILL_PX = 1.5, 7.0  # beside noise of deviation 1
RADIUS = {Size.SMALL: 8.5, Size.MEDIUM: 12.5, Size.LARGE: 18.0}


@dataclass(frozen=True, slots=True)
class Start:
    """Where a thing is in a film's first frame, in pixels, and where in its turn or bounce, of 1."""

    x: float
    y: float
    phase: float


def arrange(prompt: PocketPrompt, radius: float, rng: np.random.Generator) -> list[Start]:
    """Places for all things that keep apart, whatever they do; `radius` is that of each."""
    number = list(Number).index(prompt.number) + 1
    motion, margin = prompt.motion, radius + 2
    apart = 2.3 * radius
    while True:
        x = rng.uniform(margin, WIDTH - margin, number)
        y = rng.uniform(margin, HEIGHT - margin, number)
        if motion is Motion.BOUNCE:
            y = np.full(number, HEIGHT - margin - 4)
        dx = np.abs(x[:, None] - x)
        dy = np.abs(y[:, None] - y)
        if motion in {Motion.LEFT, Motion.RIGHT}:
            dx = np.minimum(dx, WIDTH + 2 * margin - dx)
        elif motion in {Motion.UP, Motion.DOWN}:
            dy = np.minimum(dy, HEIGHT + 2 * margin - dy)
        if (np.hypot(dx, dy) + np.eye(number) * 1e3).min() > apart:
            return [Start(*at, phase=rng.uniform()) for at in zip(x, y, strict=True)]
        apart *= 0.995  # three large ones bouncing hardly fit


def raised(starts: list[Start], channels: int, rows: int, columns: int) -> Tensor:
    """What is added to the noise of a first block's latents, [channels, rows, columns].

    A hill around each start: in half of the channels as it is, in the others by its phase as a turn.
    """
    y, x = torch.meshgrid(
        (torch.arange(rows) + 0.5) * (HEIGHT / rows),
        (torch.arange(columns) + 0.5) * (WIDTH / columns),
        indexing="ij",
    )
    raised_by = torch.zeros(channels, rows, columns)
    for start in starts:
        hill = HILL * torch.exp(-((x - start.x) ** 2 + (y - start.y) ** 2) / (2 * HILL_PX**2))
        turn = 2 * math.pi * start.phase
        raised_by[: channels // 2] += hill
        raised_by[channels // 2 :: 2] += math.sin(turn) * hill
        raised_by[channels // 2 + 1 :: 2] += math.cos(turn) * hill
    return raised_by

"""Where the things of a pocket film begin: apart from each other, drawn from its seed before it is denoised.

The text encoder tells the denoiser of it beside the prompt's words. To make up a layout and to draw it are
two tasks, and a small network that has only the second to learn draws better (layout-grounded diffusion,
arXiv 2305.13655).
"""

from dataclasses import dataclass

import numpy as np

from shared.models.wan.language import Motion, Number, PocketPrompt, Size

WIDTH, HEIGHT = 160, 96
MOST_THINGS = len(Number)
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

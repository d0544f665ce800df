"""From noise to clean latents in a few steps: the flow-matching schedules of Causal Forcing, and the steps.

x_t = (1 - sigma) data + sigma noise, and the network says the flow, noise minus data. Sources: Self-Forcing
(arXiv 2506.08009) and Causal Forcing for the steps and the shift; rectified flow, arXiv 2209.03003.
"""

import enum
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shared.models.wan.dit import TRAIN_TIMESTEPS

Flow = Callable[[Tensor, float], Tensor]
"""(latents, timestep in 0..1000) -> flow."""

Noise = Callable[[int], Tensor]
"""Normal noise of a step, the same one every time that it is asked for; of step 0 the block begins."""


class Solver(enum.StrEnum):
    """How one step leads to the next."""

    RENOISE = "renoise"
    """Clean latents are estimated, then noised again: what Self-Forcing and Causal Forcing distil for."""
    EULER = "euler"
    """Straight on along the flow: for models that were not distilled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """Steps in 1..1000, before the shift; block 0, which has nothing to look back at, may have more."""

    steps: tuple[int, ...] = (1000, 750, 500, 250)
    first_block_steps: tuple[int, ...] = ()
    """Empty: the same as of all blocks."""
    shift: float = 5.0
    solver: Solver = Solver.RENOISE

    def __post_init__(self) -> None:
        for name in ("steps", "first_block_steps"):
            steps = getattr(self, name)
            falling = all(a > b for a, b in itertools.pairwise(steps))
            if not falling or any(not 0 < step <= TRAIN_TIMESTEPS for step in steps):
                raise ValueError(
                    f"schedule: {name}={list(steps)} must fall, from {TRAIN_TIMESTEPS} at most, above 0"
                )
        if not self.steps:
            raise ValueError("schedule: steps must name at least one")
        if self.shift <= 0:
            raise ValueError(f"schedule: shift={self.shift} must be above 0")

    def timesteps(self, block: int) -> list[float]:
        """Timesteps of a block after the shift: 1000, 937.5, 833.33 and 625 for the usual four."""
        steps = self.first_block_steps or self.steps if block == 0 else self.steps
        return [shifted(step / TRAIN_TIMESTEPS, self.shift) * TRAIN_TIMESTEPS for step in steps]


def shifted(sigma: float, shift: float) -> float:
    """More of the time where noise is strong: shift sigma / (1 + (shift - 1) sigma)."""
    return shift * sigma / (1 + (shift - 1) * sigma)


def denoise(
    flow: Flow, noise: Noise, timesteps: list[float], solver: Solver, *, stopped: Callable[[], bool]
) -> Tensor | None:
    """Clean latents of a block, computed in fp32; None when `stopped()` before a step."""
    x = noise(0)
    for step, timestep in enumerate(timesteps):
        if stopped():
            return None
        sigma = timestep / TRAIN_TIMESTEPS
        v = flow(x, timestep).to(x.dtype)
        last = step + 1 == len(timesteps)
        after = 0.0 if last else timesteps[step + 1] / TRAIN_TIMESTEPS
        if solver is Solver.EULER:
            x = x + (after - sigma) * v
        else:
            x = x - sigma * v
            if not last:
                x = torch.lerp(x, noise(step + 1), after)
    return x

"""The flow-matching solver: a pure function from noise to latents."""

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

Velocity = Callable[[Tensor, int], Tensor]
"""(x at times[step], step) -> d x / d tau."""


def flow_times(steps: int) -> tuple[float, ...]:
    """Flow times from noise (1) to data (0): steps + 1 values, evenly spaced."""
    return tuple(1 - step / steps for step in range(steps + 1))


def euler(velocity: Velocity, noise: Tensor, times: tuple[float, ...]) -> Tensor:
    """Integrate dx/dtau = velocity from times[0] to times[-1] (rectified flow, arXiv 2209.03003)."""
    x = noise
    for step in range(len(times) - 1):
        x = x + (times[step + 1] - times[step]) * velocity(x, step)
    return x


def unit_generator(seed: int, unit: int, purpose: str) -> torch.Generator:
    """Randomness that depends on session seed, unit and purpose alone, made on the CPU for every device."""
    digest = hashlib.blake2b(f"{seed} {unit} {purpose}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


def unit_noise(seed: int, unit: int, shape: tuple[int, ...]) -> Tensor:
    """Normal noise that depends on the session seed and the unit alone, made on the CPU for every device."""
    return torch.randn(shape, generator=unit_generator(seed, unit, "noise"))

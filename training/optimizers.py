"""Optimizers of the training loop."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BETAS = (0.9, 0.98)


def adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """One for all weights."""
    return torch.optim.AdamW(_trained(model), lr=learning_rate, betas=BETAS, weight_decay=weight_decay)


def muon(model: nn.Module, learning_rate: float, weight_decay: float) -> "Together":
    """Muon for matrices of transformer blocks, AdamW for all else; needs torch 2.9 or newer.

    Source: Keller Jordan, "Muon" (2024), with updates as large as AdamW's (arXiv 2502.16982).
    """
    inside = [p for name, p in model.named_parameters() if p.requires_grad and p.ndim == 2 and ".blocks." in name]
    chosen = {id(p) for p in inside}
    others = [p for p in _trained(model) if id(p) not in chosen]
    return Together(
        torch.optim.Muon(
            inside, lr=learning_rate, weight_decay=weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=learning_rate, betas=BETAS, weight_decay=weight_decay),
    )


class Together:
    """Several optimizers as one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._all = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._all for group in optimizer.param_groups]

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        for optimizer in self._all:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        for optimizer in self._all:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(n): optimizer.state_dict() for n, optimizer in enumerate(self._all)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for n, optimizer in enumerate(self._all):
            optimizer.load_state_dict(state[str(n)])


MakeOptimizer = Callable[[nn.Module, float, float], torch.optim.Optimizer | Together]
"""(model, learning rate, weight decay) -> what makes its steps."""


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]

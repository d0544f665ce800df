"""Optimizers of the training loop."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.98)


def adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """One for all weights."""
    return torch.optim.AdamW(_trained(model), lr=learning_rate, betas=BETAS, weight_decay=weight_decay)


def muon(
    model: nn.Module, learning_rate: float, weight_decay: float, *, inner: Callable[[str], bool]
) -> "Together":
    """Muon for layers whose name is `inner`, which lie between the first and the last, AdamW for all else.

    Needs torch 2.9 or newer.

    Source: Keller Jordan, "Muon" (2024), with updates as large as AdamW's (arXiv 2502.16982). Convolutions
    count as matrices from what they read to what they write.
    """
    chosen_weights = [
        layer.weight
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d) and inner(name) and layer.weight.requires_grad
    ]
    chosen = {id(p) for p in chosen_weights}
    others = [p for p in _trained(model) if id(p) not in chosen]
    matrices = [_Matrix(p) for p in chosen_weights]
    return Together(
        torch.optim.Muon(
            [m.view for m in matrices], lr=learning_rate, weight_decay=weight_decay, momentum=0.95,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(others, lr=learning_rate, betas=BETAS, weight_decay=weight_decay),
        matrices=matrices,
    )  # fmt: skip


class _Matrix:
    """A weight seen as a matrix, in the same memory."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self.view = nn.Parameter(weight.detach().view(len(weight), -1))

    def take_gradient(self) -> None:
        assert self._weight.grad is not None
        self.view.grad = self._weight.grad.reshape(self.view.shape)

    def release_gradient(self) -> None:
        self._weight.grad = None


class Together:
    """Several optimizers as one."""

    def __init__(self, *optimizers: torch.optim.Optimizer, matrices: Sequence[_Matrix] = ()) -> None:
        self._all = optimizers
        self._matrices = matrices

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._all for group in optimizer.param_groups]

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        for optimizer in self._all:
            optimizer.zero_grad(set_to_none=set_to_none)
        for matrix in self._matrices:
            matrix.release_gradient()

    def step(self) -> None:
        for matrix in self._matrices:
            matrix.take_gradient()
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

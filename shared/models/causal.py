"""Causal convolution blocks whose state is an explicit tensor, never hidden in a module.

Shape suffixes: B batch, T time, C channels, P past steps (kernel - 1).
"""

from collections.abc import Iterable
from typing import Self

import torch
from torch import Tensor, nn

from shared.models.onednn import PackedLinear, pack


class CausalConv1d(nn.Module):
    """Depthwise convolution over time that sees the present and the past only."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.past = kernel - 1
        self.conv = nn.Conv1d(channels, channels, kernel, groups=channels)

    def init_context(self, batch: int) -> Tensor:
        """Zeros of shape [B, P, C]: the silence before the first step."""
        bias = self.conv.bias
        assert bias is not None
        return bias.new_zeros(batch, self.past, len(bias))

    def forward(self, x_BTC: Tensor, context_BPC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [B, T, C] and the context for the steps that follow."""
        joined = torch.cat([context_BPC.to(x_BTC.dtype), x_BTC], dim=1)
        y_BTC = self.conv(joined.transpose(1, 2)).transpose(1, 2)
        return y_BTC, joined[:, joined.shape[1] - self.past :]


class ConvNeXtBlock(nn.Module):
    """ConvNeXt (arXiv 2201.03545) over time, made causal: depthwise mix, then a pointwise MLP, residual."""

    def __init__(self, channels: int, kernel: int, expansion: int) -> None:
        super().__init__()
        self.mix = CausalConv1d(channels, kernel)
        self.norm = nn.LayerNorm(channels)
        self.up: nn.Module = nn.Linear(channels, expansion * channels)
        self.down: nn.Module = nn.Linear(expansion * channels, channels)
        self.gain = nn.Parameter(torch.full((channels,), 0.1))
        self.activation: nn.Module = nn.GELU()
        self.dtype: torch.dtype | None = None  # of a packed MLP

    def init_context(self, batch: int) -> Tensor:
        return self.mix.init_context(batch)

    def forward(self, x_BTC: Tensor, context_BPC: Tensor) -> tuple[Tensor, Tensor]:
        """Return [B, T, C] and the new context."""
        y_BTC, context = self.mix(x_BTC, context_BPC)
        y_BTC = self.down(self.activation(self.up(self.norm(y_BTC).to(self.dtype or y_BTC.dtype))))
        return torch.addcmul(x_BTC, self.gain, y_BTC.to(x_BTC.dtype)), context

    def packed(self, dtype: torch.dtype) -> Self:
        """Compute the whole MLP in `dtype`, for inference."""
        if isinstance(self.up, nn.Linear) and isinstance(self.down, nn.Linear):
            pack(self.mix, dtype)
            self.up = PackedLinear(self.up.weight, self.up.bias, dtype, gelu=True)
            self.down = PackedLinear(self.down.weight, self.down.bias, dtype)
            self.activation, self.dtype = nn.Identity(), dtype
        return self


def init_contexts(blocks: Iterable[nn.Module], batch: int) -> list[Tensor]:
    """Contexts of a row of ConvNeXt blocks before the first step, one a block."""
    contexts = []
    for block in blocks:
        assert isinstance(block, ConvNeXtBlock)
        contexts.append(block.init_context(batch))
    return contexts

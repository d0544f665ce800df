"""A transformer with rotary time, grouped heads and flow-time modulation; it knows no cache and no mask.

What a token may see is decided by the `attend` callable that is passed in: training attends under a mask,
the runtime attends to a preallocated cache (`shared.models.cache`).

Shape suffixes: B batch, T new tokens, H query heads, K key heads, D head dim, C model dim, M modulation
vectors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.tables import require_positive

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q_BTHD, k_BTKD, v_BTKD) -> what the new tokens gather, as [B, T, H, D]."""

Rope = tuple[Tensor, Tensor]
"""Cosine and signed sine, each [1 or B, T, D]; see `rope_angles`."""

Reduce = Callable[[Tensor], Tensor]
"""Completes what a rank made a part of (`tensor_parallel`): [B, T, C] to the sum over all ranks."""

NUM_MODULATIONS = 6  # shift, scale and gate, for attention and for the feed-forward


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """Sizes of the transformer."""

    dim: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 64
    ffn: int = 704
    rope_theta: float = 1e4
    time_dim: int = 256  # size of the sinusoid that stands for the flow time

    def __post_init__(self) -> None:
        require_positive(self, "transformer")
        if self.heads % self.kv_heads:
            raise ValueError(f"transformer: heads={self.heads} is not a multiple of kv_heads={self.kv_heads}")
        for name, size in (("head_dim", self.head_dim), ("time_dim", self.time_dim)):
            if size % 2:
                raise ValueError(f"transformer: {name}={size} must be even")

    @property
    def numbers(self) -> int:
        """Parameters of all layers: attention, feed-forward and modulation offsets."""
        attention = self.dim * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.dim * self.ffn + NUM_MODULATIONS * self.dim)


def rope_angles(steps: Tensor, config: TransformerConfig) -> Rope:
    """For media times [..., T] in steps of 40 ms, what `rotate` takes (RoFormer, arXiv 2104.09864).

    Cosine and sine of the angle for each head dim, [..., T, D]; the sine is negative in the first half.
    The angle is computed in fp64: in fp32 it would be off by 0.06 rad after a few hours.
    """
    half = config.head_dim // 2
    rates = config.rope_theta ** (-torch.arange(half, dtype=torch.float64, device=steps.device) / half)
    angles = steps.double()[..., None] * rates
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], dim=-1).float(), torch.cat([-sin, sin], dim=-1).float()


def rotate(x_BTHD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor) -> Tensor:
    """Turn each pair (first half, second half) of the head dims by the token's angle."""
    half = x_BTHD.shape[-1] // 2
    cos, sin = cos_BTD.unsqueeze(-2).to(x_BTHD.dtype), sin_BTD.unsqueeze(-2).to(x_BTHD.dtype)
    return torch.addcmul(x_BTHD * cos, x_BTHD.roll(half, -1), sin)


def rms_norm(x: Tensor) -> Tensor:
    """Divide by the root mean square over the last dim."""
    return F.rms_norm(x, (x.shape[-1],))


def identity(x: Tensor) -> Tensor:
    """Where one rank computes everything, nothing is to be added."""
    return x


class FlowTime(nn.Module):
    """From flow time in [0, 1] to the six modulation vectors that all layers share (adaLN-single, PixArt)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.mix = nn.Sequential(nn.Linear(config.time_dim, config.dim), nn.SiLU())
        self.write = nn.Linear(config.dim, NUM_MODULATIONS * config.dim)
        nn.init.zeros_(self.write.weight)
        nn.init.zeros_(self.write.bias)

    def forward(self, tau: Tensor) -> Tensor:
        """Map flow times [...] to modulations [..., M, C]."""
        half = self.config.time_dim // 2
        rates = torch.exp(-math.log(1e4) * torch.arange(half, device=tau.device) / half)
        angles = 1000 * tau[..., None] * rates
        sinusoid = torch.cat([angles.cos(), angles.sin()], dim=-1)
        out: Tensor = self.write(self.mix(sinusoid))
        return out.view(*tau.shape, NUM_MODULATIONS, self.config.dim)


class Block(nn.Module):
    """Modulated attention, then a modulated SwiGLU."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.reduce: Reduce = identity
        inner = config.heads * config.head_dim
        self.qkv = nn.Linear(config.dim, inner + 2 * config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(inner, config.dim, bias=False)
        self.gate_up = nn.Linear(config.dim, 2 * config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.dim, bias=False)
        # Offsets to the shared modulation; both gates start open, so that an untrained block already acts.
        offset_MC = torch.zeros(NUM_MODULATIONS, config.dim)
        offset_MC[2] = offset_MC[5] = 1.0
        self.offset_MC = nn.Parameter(offset_MC)

    def forward(self, layer: int, x_BTC: Tensor, rope: Rope, modulation: Tensor, attend: Attend) -> Tensor:
        """Same shape in and out; modulation is [B or 1, T or 1, M, C]."""
        config = self.config
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = (
            modulation + self.offset_MC.to(modulation.dtype)
        ).unbind(-2)
        h = torch.addcmul(shift, rms_norm(x_BTC), 1 + scale)
        heads = self.qkv(h).unflatten(-1, (-1, config.head_dim))
        turning, v = heads[:, :, : -config.kv_heads], heads[:, :, -config.kv_heads :]
        turned = rotate(rms_norm(turning), *rope)
        q, k = turned[:, :, : config.heads], turned[:, :, config.heads :]
        gathered = self.reduce(self.out(attend(layer, q, k, v).flatten(2)))
        x_BTC = torch.addcmul(x_BTC, gate, gathered)
        h = torch.addcmul(ffn_shift, rms_norm(x_BTC), 1 + ffn_scale)
        a, b = self.gate_up(h).chunk(2, dim=-1)
        fed = self.reduce(self.down(F.silu(a) * b))
        return torch.addcmul(x_BTC, ffn_gate, fed)


class Transformer(nn.Module):
    """The stack of blocks."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        blocks = [Block(config) for _ in range(config.layers)]
        for block in blocks:
            nn.init.normal_(block.out.weight, std=0.02 / math.sqrt(2 * config.layers))
            nn.init.normal_(block.down.weight, std=0.02 / math.sqrt(2 * config.layers))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x_BTC: Tensor, steps: Tensor, modulation: Tensor, attend: Attend) -> Tensor:
        """Run all layers over T new tokens; return [B, T, C].

        `steps` are their media times in steps of 40 ms: [T], or [B, T] where rows differ.
        """
        rope = rope_angles(steps if steps.dim() == 2 else steps[None], self.config)
        given, dtype = x_BTC.dtype, next(self.parameters()).dtype  # of the modulation offsets
        x_BTC, modulation = x_BTC.to(dtype), modulation.to(dtype)
        for layer, block in enumerate(self.blocks):
            x_BTC = block(layer, x_BTC, rope, modulation, attend)
        return x_BTC.to(given)

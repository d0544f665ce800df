"""The causal diffusion transformer of Wan 2.1, with the key names of the original checkpoints.

Architecture: Wan (arXiv 2503.20314; github.com/Wan-Video/Wan2.1), made causal in blocks of latent frames as
in Self-Forcing (arXiv 2506.08009) and Causal Forcing. Every latent frame has a timestep of its own. The
network knows no cache and no mask: what a token sees is decided by the `attend` callables that are passed in.

Shape suffixes: B batch, F latent frames, N tokens of a frame, T = F x N tokens, C model dim, H heads, D head
dim, L text tokens, M modulation vectors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.tables import require_positive

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q_BHTD, k_BHTD, v_BHTD) -> what the tokens gather, [B, H, T, D]."""

TextKV = tuple[Tensor, Tensor]
"""Keys and values of the prompt for one layer's cross-attention, each [B, H, L, D]."""

Rope = tuple[Tensor, Tensor]
"""Cosine and sine of every token's angles, each [T, D / 2]."""

PATCH = (1, 2, 2)  # latent frames, rows and columns of one token
TRAIN_TIMESTEPS = 1000
MOST_SCORES = 1 << 20  # of a head


@dataclass(frozen=True, kw_only=True, slots=True)
class DiTConfig:
    """Sizes; those of Wan2.1-T2V-1.3B by default."""

    dim: int = 1536
    ffn: int = 8960
    heads: int = 12
    layers: int = 30
    latent_channels: int = 16
    text_dim: int = 4096
    text_len: int = 512
    freq_dim: int = 256
    rope_theta: float = 1e4

    def __post_init__(self) -> None:
        require_positive(self, "dit")
        if self.dim % self.heads or self.head_dim % 2:
            raise ValueError(f"dit: dim={self.dim} must be an even multiple of heads={self.heads}")
        if self.freq_dim % 2:
            raise ValueError(f"dit: freq_dim={self.freq_dim} must be even")

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return self.dim // self.heads

    @property
    def rope_dims(self) -> tuple[int, int, int]:
        """How many of a head's pairs turn with time, height and width."""
        side = self.head_dim // 6
        return self.head_dim // 2 - 2 * side, side, side


def rope_angles(
    config: DiTConfig, shape: tuple[int, int, int], device: torch.device, *, first_frame: int = 0
) -> Rope:
    """Angles of the tokens of (frames, rows, columns), computed in fp64: `first_frame` may be any."""
    axes = []
    for axis, (dim, first) in enumerate(zip(config.rope_dims, (first_frame, 0, 0), strict=True)):
        places = torch.arange(first, first + shape[axis], dtype=torch.float64)
        others = [1 if other != axis else -1 for other in range(3)]
        axes.append(torch.outer(places, _rates(config, dim)).view(*others, dim).expand(*shape, dim))
    return _cos_sin(torch.cat(axes, dim=-1).flatten(0, 2), device)


def time_angles(config: DiTConfig, frames: int, device: torch.device) -> Rope:
    """Angles that move tokens by so many latent frames, and leave them where they are in the picture."""
    time, *sides = config.rope_dims
    moved = frames * _rates(config, time)
    return _cos_sin(torch.cat([moved, moved.new_zeros(sum(sides))])[None], device)


def _rates(config: DiTConfig, dim: int) -> Tensor:
    return config.rope_theta ** -(torch.arange(dim, dtype=torch.float64) / dim)


def _cos_sin(angles: Tensor, device: torch.device) -> Rope:
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x_BHTD: Tensor, rope: Rope) -> Tensor:
    """Turn each pair of neighbouring head dims by the token's angle (RoFormer, arXiv 2104.09864)."""
    cos, sin = rope
    even, odd = x_BHTD.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return turned.flatten(-2).to(x_BHTD.dtype)


def sinusoid(timesteps: Tensor, dim: int) -> Tensor:
    """Timesteps [...] in 0..1000 as [..., dim] cosines, then sines, computed in fp64."""
    half = dim // 2
    rates = 1e4 ** -(torch.arange(half, dtype=torch.float64, device=timesteps.device) / half)
    angles = timesteps.double()[..., None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


class RMSNorm(nn.Module):
    """Of all heads together, so that ranks that share the heads have to add up their sums of squares."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Projections and norms of one attention; who sees whom is the caller's."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = nn.Linear(config.dim, config.dim)
        self.k = nn.Linear(config.dim, config.dim)
        self.v = nn.Linear(config.dim, config.dim)
        self.o = nn.Linear(config.dim, config.dim)
        self.norm_q = RMSNorm(config.dim)
        self.norm_k = RMSNorm(config.dim)

    def query(self, x_BTC: Tensor) -> Tensor:
        """[B, H, T, D]."""
        return self._by_head(self.norm_q(self.q(x_BTC)))

    def keys_and_values(self, x_BTC: Tensor) -> TextKV:
        """Both [B, H, T, D]."""
        return self._by_head(self.norm_k(self.k(x_BTC))), self._by_head(self.v(x_BTC))

    def write(self, gathered_BHTD: Tensor) -> Tensor:
        """Back to [B, T, C]."""
        out: Tensor = self.o(gathered_BHTD.transpose(1, 2).flatten(2))
        return out

    def _by_head(self, x_BTC: Tensor) -> Tensor:
        out: Tensor = x_BTC.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return out


def attention(q_BHTD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor) -> Tensor:
    """What queries gather from all keys, [B, H, T, D].

    On a CPU plain products take half the time of the fused kernel, as long as their scores are small.
    """
    if q_BHTD.device.type == "cpu" and q_BHTD.shape[2] * k_BHSD.shape[2] <= MOST_SCORES:
        scores = torch.matmul(q_BHTD * q_BHTD.shape[-1] ** -0.5, k_BHSD.transpose(-1, -2))
        return torch.matmul(scores.softmax(-1), v_BHSD)
    return F.scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSD)


def modulated(x_BTC: Tensor, shift: Tensor, scale: Tensor, frames: int) -> Tensor:
    """Layer norm without weights, then each frame's own shift and scale, [B, F, 1, C]."""
    normed = F.layer_norm(x_BTC.float(), x_BTC.shape[-1:], eps=1e-6).to(x_BTC.dtype)
    return torch.addcmul(shift, normed.unflatten(1, (frames, -1)), 1 + scale).flatten(1, 2)


class DiTBlock(nn.Module):
    """Modulated self-attention, cross-attention to the prompt (not gated), modulated feed-forward."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.norm3 = nn.LayerNorm(
            config.dim, eps=1e-6
        )  # before the cross-attention, as the original calls it
        self.cross_attn = Attention(config)
        self.ffn = nn.Sequential(
            nn.Linear(config.dim, config.ffn), nn.GELU(approximate="tanh"), nn.Linear(config.ffn, config.dim)
        )
        self.modulation = nn.Parameter(torch.randn(1, 6, config.dim) / config.dim**0.5)

    def forward(
        self, layer: int, x_BTC: Tensor, modulation_BFMC: Tensor, *, rope: Rope, text: TextKV, attend: Attend
    ) -> Tensor:
        """Same shape in and out."""
        frames = modulation_BFMC.shape[1]
        shift, scale, gate, ffn_shift, ffn_scale, ffn_gate = (
            (self.modulation[:, None] + modulation_BFMC).to(x_BTC.dtype)[:, :, :, None].unbind(2)
        )
        h = modulated(x_BTC, shift, scale, frames)
        k, v = self.self_attn.keys_and_values(h)
        gathered = attend(layer, rotate(self.self_attn.query(h), rope), rotate(k, rope), v)
        x_BTC = _gated(x_BTC, self.self_attn.write(gathered), gate, frames)
        query = self.cross_attn.query(self.norm3(x_BTC))
        x_BTC = x_BTC + self.cross_attn.write(attention(query, *text))
        h = self.ffn(modulated(x_BTC, ffn_shift, ffn_scale, frames))
        return _gated(x_BTC, h, ffn_gate, frames)


def _gated(x_BTC: Tensor, change_BTC: Tensor, gate: Tensor, frames: int) -> Tensor:
    by_frame = x_BTC.unflatten(1, (frames, -1))
    return torch.addcmul(by_frame, gate, change_BTC.unflatten(1, (frames, -1))).flatten(1, 2)


class Head(nn.Module):
    """From tokens back to patches of the latents' flow."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.head = nn.Linear(config.dim, config.latent_channels * PATCH[1] * PATCH[2])
        self.modulation = nn.Parameter(torch.randn(1, 2, config.dim) / config.dim**0.5)

    def forward(self, x_BTC: Tensor, time_BFC: Tensor) -> Tensor:
        frames = time_BFC.shape[1]
        shift, scale = (
            (self.modulation[:, None] + time_BFC[:, :, None]).to(x_BTC.dtype)[:, :, :, None].unbind(2)
        )
        out: Tensor = self.head(modulated(x_BTC, shift, scale, frames))
        return out


class WanDiT(nn.Module):
    """The whole network; `state_dict` has the original's names."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embedding = nn.Conv3d(config.latent_channels, config.dim, PATCH, PATCH)
        self.text_embedding = nn.Sequential(
            nn.Linear(config.text_dim, config.dim),
            nn.GELU(approximate="tanh"),
            nn.Linear(config.dim, config.dim),
        )
        self.time_embedding = nn.Sequential(
            nn.Linear(config.freq_dim, config.dim), nn.SiLU(), nn.Linear(config.dim, config.dim)
        )
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(config.dim, 6 * config.dim))
        self.blocks = nn.ModuleList(DiTBlock(config) for _ in range(config.layers))
        self.head = Head(config)

    def _each_block(self) -> Iterator[DiTBlock]:
        for block in self.blocks:
            assert isinstance(block, DiTBlock)
            yield block

    def text_kv(self, text_BLE: Tensor) -> list[TextKV]:
        """What all layers' cross-attention sees of a prompt's embedding [B, L, text dim], pads and all."""
        text_BLC = self.text_embedding(text_BLE)
        return [block.cross_attn.keys_and_values(text_BLC) for block in self._each_block()]

    def forward(
        self,
        latents: Tensor,
        timesteps_BF: Tensor,
        text: list[TextKV],
        attend: Attend,
        *,
        first_frame: int = 0,
    ) -> Tensor:
        """The flow (noise minus data) of latents [B, F, channels, rows, columns], of the same shape.

        `timesteps_BF` are in 0..1000; `first_frame` is where in the film the first latent lies.
        """
        rows, columns = (size // PATCH[1] for size in latents.shape[-2:])
        frames = latents.shape[1]
        x_BTC = self.patch_embedding(latents.transpose(1, 2)).flatten(2).transpose(1, 2)
        time_BFC = self.time_embedding(sinusoid(timesteps_BF, self.config.freq_dim).to(x_BTC.dtype))
        modulation_BFMC = self.time_projection(time_BFC).unflatten(-1, (6, -1))
        rope = rope_angles(self.config, (frames, rows, columns), latents.device, first_frame=first_frame)
        for layer, block in enumerate(self._each_block()):
            x_BTC = block(layer, x_BTC, modulation_BFMC, rope=rope, text=text[layer], attend=attend)
        patches = self.head(x_BTC, time_BFC)
        # [B, F x rows x columns, 2 x 2 x channels] to pictures
        grid = patches.view(-1, frames, rows, columns, PATCH[1], PATCH[2], self.config.latent_channels)
        out: Tensor = grid.permute(0, 1, 6, 2, 4, 3, 5).flatten(5, 6).flatten(3, 4)
        return out

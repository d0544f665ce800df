"""A transformer split over ranks: each computes some of the heads and a part of the feed-forward.

Tensor parallel as in Megatron-LM (arXiv 1909.08053): all ranks are given the same tokens; of a layer's
queries, keys, values and gates each makes its part, and from it a part of the two sums that end attention and
feed-forward, which `reduce` completes. Nothing else crosses. A rank's cache holds its own key heads alone.

This module knows no processes: who reduces is passed in (`performer.group` does it between processes).

Shape suffixes: C model dim, H query heads, K key heads, D head dim, F feed-forward.
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.transformer import Block, Reduce, Transformer, TransformerConfig, identity


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardSpec:
    """What one rank has of a model, by default all of it, and how the ranks add up."""

    rank: int = 0
    ranks: int = 1
    reduce: Reduce = identity

    def of(self, size: int) -> slice:
        """The rank's own of `size` things, which must be a multiple of the ranks."""
        each = size // self.ranks
        return slice(self.rank * each, (self.rank + 1) * each)


WHOLE = ShardSpec()


def part_of(config: TransformerConfig, ranks: int) -> TransformerConfig:
    """Sizes of what each of so many ranks has.

    Raises:
        ValueError: heads or feed-forward can't be split evenly; names field and value.
    """
    sizes = {name: getattr(config, name) for name in ("kv_heads", "heads", "ffn")}
    for name, size in sizes.items():
        if size % ranks:
            raise ValueError(f"transformer: {name}={size} can't be split over {ranks} ranks evenly")
    return dataclasses.replace(config, **{name: size // ranks for name, size in sizes.items()})


def shard(transformer: Transformer, share: ShardSpec) -> None:
    """Reduce a whole transformer to one rank's part, in place, layer by layer.

    Raises:
        ValueError: as `part_of`.
    """
    if share.ranks == 1:
        return
    part = part_of(transformer.config, share.ranks)
    for block in transformer.blocks:
        assert isinstance(block, Block)
        _shard_block(block, share)
        block.config = part
        block.reduce = share.reduce
    transformer.config = part


def _shard_block(block: Block, share: ShardSpec) -> None:
    config = block.config
    dim, heads, ffn = config.dim, share.of(config.heads), share.of(config.ffn)
    qkv = block.qkv.weight.view(-1, config.head_dim, dim)
    q_HDC, *kv_KDC = torch.split(qkv, [config.heads, config.kv_heads, config.kv_heads])
    own = [q_HDC[heads], *(each[share.of(config.kv_heads)] for each in kv_KDC)]
    out_CHD = block.out.weight.view(dim, config.heads, config.head_dim)
    gate_up_2FC = block.gate_up.weight.view(2, config.ffn, dim)
    block.qkv = _linear(torch.cat(own).flatten(0, 1))
    block.out = _linear(out_CHD[:, heads].flatten(1))
    block.gate_up = _linear(gate_up_2FC[:, ffn].flatten(0, 1))
    block.down = _linear(block.down.weight[:, ffn])


def _linear(weight: Tensor) -> nn.Linear:
    """A linear layer of these weights, in memory of its own, so that the whole is freed."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    own = weight.detach().clone(memory_format=torch.contiguous_format)
    linear.weight = nn.Parameter(own, requires_grad=weight.requires_grad)
    return linear

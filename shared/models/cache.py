"""The KV cache: one preallocated tensor, written by place, read whole under a bias that hides what is empty.

Shape suffixes: L layers, 2 keys and values, K key heads, N places, T new tokens, D head dim, H query heads,
B batch (1: one session).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from shared.models.layout import Block, Layout, Tower
from shared.models.transformer import Attend, TransformerConfig


class KVCache:
    """Keys and values of one session. Keys are kept rotated by their media time, so order means nothing."""

    def __init__(self, layout: Layout, config: TransformerConfig, *, dtype: torch.dtype, device: str) -> None:
        self.layout = layout
        self.grouped = config.heads != config.kv_heads
        shape = (config.layers, 2, config.kv_heads, layout.capacity, config.head_dim)
        self.kv_L2KND = torch.zeros(shape, dtype=dtype, device=device)
        self.hidden_N = torch.full((layout.capacity,), float("-inf"), dtype=dtype, device=device)
        self.hidden_N[layout.kept :] = 0.0

    def reset(self) -> None:
        """Forget everything, in place."""
        self.kv_L2KND.zero_()
        self.hidden_N[: self.layout.kept] = float("-inf")

    def slice_elements(self, block: Block) -> int:
        """Numbers in the KV slice of a block."""
        layers, pair, heads, _, dim = self.kv_L2KND.shape
        return layers * pair * heads * dim * self.layout.tokens(block)

    def writer(self, block: Block, unit: int, tower: Tower = Tower.SPEAKING) -> Attend:
        """An `attend` that stores a tower's keys and values of the block, then looks at its past and them."""
        places = self.layout.places(block, unit, tower)
        self._reveal(places)
        sizes = [place.stop - place.start for place in places]

        def store(layer: int, keys_or_values: int, new_BKTD: Tensor) -> None:
            target_KND = self.kv_L2KND[layer, keys_or_values]
            for place, part in zip(places, torch.split(new_BKTD[0], sizes, dim=1), strict=True):
                target_KND[:, place] = part

        return self._attend(store, self.layout.seen_by(tower))

    def reader(self) -> Attend:
        """An `attend` for speaking tokens that see all of their past and each other but are not kept."""
        kept = self.layout.kept

        def store(layer: int, keys_or_values: int, new_BKTD: Tensor) -> None:
            self.kv_L2KND[layer, keys_or_values, :, kept:] = new_BKTD[0]

        past = self.layout.seen_by(Tower.SPEAKING)
        return self._attend(store, slice(past.start, self.layout.capacity))

    def pack(self, block: Block, unit: int, out: Tensor) -> None:
        """Copy a block's slice to the flat `out`, stream by stream."""
        at = 0
        for place in self.layout.places(block, unit):
            part = self.kv_L2KND[:, :, :, place]
            out[at : at + part.numel()].view(part.shape).copy_(part)
            at += part.numel()

    def append(self, block: Block, unit: int, flat: Tensor) -> None:
        """Take in a slice that `pack` made; the cache then equals the writer's byte for byte."""
        places = self.layout.places(block, unit)
        at = 0
        for place in places:
            part = self.kv_L2KND[:, :, :, place]
            part.copy_(flat[at : at + part.numel()].view(part.shape))
            at += part.numel()
        assert at == flat.numel(), f"slice of {flat.numel()} numbers, block of {at}"
        self._reveal(places)

    def _reveal(self, places: list[slice]) -> None:
        for place in places:
            self.hidden_N[place] = 0.0

    def _attend(self, store: Callable[[int, int, Tensor], None], visible: slice) -> Attend:
        bias_11TN = self.hidden_N[None, None, None, visible]

        def attend(layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
            store(layer, 0, k_BKTD)
            store(layer, 1, v_BKTD)
            keys, values = self.kv_L2KND[layer, :, None, :, visible]
            return F.scaled_dot_product_attention(
                q_BHTD, keys, values, attn_mask=bias_11TN, enable_gqa=self.grouped
            )

        return attend

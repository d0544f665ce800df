"""The KV cache of all sessions: one preallocated tensor, a slot for each, written by place, read in one go.

A pass is for a *batch*: some slots, each at a unit of its own. What was never written in a slot is hidden by
a bias. Keys are kept rotated by their media time, so the order of places means nothing to attention.

Shape suffixes: L layers, 2 keys and values, S slots, N places, K key heads, D head dim, H query heads,
B batch (slots of a pass), T new tokens of each, M = B T rows to be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from shared.models.layout import Block, Layout, Tower
from shared.models.parallel import WHOLE, Share
from shared.models.transformer import Attend, TransformerConfig


class KVCache:
    """Keys and values of `slots` sessions; where ranks share the heads, those of one rank."""

    def __init__(
        self,
        layout: Layout,
        config: TransformerConfig,
        *,
        slots: int = 1,
        share: Share = WHOLE,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        self.layout = layout
        self._all_heads, self._own_heads = config.kv_heads, share.of(config.kv_heads)
        self.grouped = config.heads != config.kv_heads
        # Token-major: a token's numbers lie together, so that writing and packing move few long pieces.
        shape = (config.layers, 2, slots, layout.capacity, config.kv_heads // share.ranks, config.head_dim)
        self.kv_L2SNKD = torch.zeros(shape, dtype=dtype, device=device)
        self._rows_L2MX = self.kv_L2SNKD.view(config.layers, 2, slots * layout.capacity, -1)
        self.hidden_SN = torch.empty((slots, layout.capacity), dtype=dtype, device=device)
        for slot in range(slots):
            self.clear(slot)

    @staticmethod
    def bytes_of(layout: Layout, config: TransformerConfig, dtype: torch.dtype) -> int:
        """Memory of one slot."""
        numbers = 2 * config.layers * config.kv_heads * config.head_dim + 1
        return layout.capacity * numbers * dtype.itemsize

    def clear(self, slot: int) -> None:
        """Forget a session, in place."""
        self.kv_L2SNKD[:, :, slot] = 0.0
        self.hidden_SN[slot] = float("-inf")
        self.hidden_SN[slot, self.layout.scratch] = 0.0

    def slice_elements(self, block: Block) -> int:
        """Numbers in the KV slice of a block."""
        layers, pair, *_, dim = self.kv_L2SNKD.shape
        return layers * pair * self._all_heads * dim * self.layout.tokens(block)

    def writer(
        self, block: Block, slots: Sequence[int], units: Sequence[int], tower: Tower = Tower.SPEAKING
    ) -> Attend:
        """An `attend` that stores a tower's keys and values of the block, then looks at its past and them."""
        places = [self.layout.places(block, unit, tower) for unit in units]
        for slot, row in zip(slots, places, strict=True):
            self._reveal(slot, row)
        seen = self.layout.seen(tower, max(units))
        return self._attend(slots, self._index(slots, places), seen)

    def reader(self, slots: Sequence[int], units: Sequence[int]) -> Attend:
        """An `attend` for speaking tokens that see all of their past and each other but are not kept."""
        scratch = self.layout.scratch
        index_M = self._index(slots, [[scratch] for _ in slots])
        past = self.layout.seen(Tower.SPEAKING, max(units))
        return self._attend(slots, index_M, slice(scratch.start, past.stop))

    def pack(self, block: Block, slot: int, unit: int, out: Tensor, first: int = 0) -> None:
        """Copy a block's slice, from layer `first` on, to the flat `out`: as many layers as fit."""
        part = self._by_layer(block, out)
        layers = slice(first, first + len(part))
        for tokens, place in self._tokens_and_places(block, unit):
            part[:, :, tokens] = self.kv_L2SNKD[layers, :, slot, place]

    def append(self, block: Block, slot: int, unit: int, flat: Tensor, first: int = 0) -> None:
        """Take in a slice that `pack` made; the cache then equals the writer's byte for byte."""
        part = self._by_layer(block, flat)
        layers = slice(first, first + len(part))
        for tokens, place in self._tokens_and_places(block, unit):
            self.kv_L2SNKD[layers, :, slot, place] = part[:, :, tokens]
        self._reveal(slot, self.layout.places(block, unit))

    def _by_layer(self, block: Block, flat: Tensor) -> Tensor:
        """View a flat slice, which has the heads of all ranks, as [layers, 2, T, K, D] of this rank's."""
        heads, dim = self._all_heads, self.kv_L2SNKD.shape[-1]
        tokens = self.layout.tokens(block)
        layers, rest = divmod(flat.numel(), 2 * tokens * heads * dim)
        assert not rest, f"a slice of {flat.numel()} numbers for {tokens} tokens of {heads} x {dim}"
        return flat.view(layers, 2, tokens, heads, dim)[..., self._own_heads, :]

    def _tokens_and_places(self, block: Block, unit: int) -> list[tuple[slice, slice]]:
        at, found = 0, []
        for place in self.layout.places(block, unit):
            length = place.stop - place.start
            found.append((slice(at, at + length), place))
            at += length
        return found

    def _reveal(self, slot: int, places: list[slice]) -> None:
        for place in places:
            self.hidden_SN[slot, place] = 0.0

    def _index(self, slots: Sequence[int], places: list[list[slice]]) -> Tensor:
        """Rows of the cache [M] for the new tokens of all slots, in the order of their batch."""
        rows = [
            slot * self.layout.capacity + at
            for slot, row in zip(slots, places, strict=True)
            for place in row
            for at in range(place.start, place.stop)
        ]
        return torch.tensor(rows, device=self.kv_L2SNKD.device)

    def _attend(self, slots: Sequence[int], index_M: Tensor, seen: slice) -> Attend:
        gather = self._gather_runs(slots, seen)

        def attend(layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
            keys, values = self._rows_L2MX[layer]
            keys.index_copy_(0, index_M, k_BTKD.reshape(len(index_M), -1))
            values.index_copy_(0, index_M, v_BTKD.reshape(len(index_M), -1))
            return gather(layer, q_BTHD.transpose(1, 2)).transpose(1, 2)

        return attend

    def _gather_runs(self, slots: Sequence[int], seen: slice) -> Callable[[int, Tensor], Tensor]:
        """Attention over slots where they lie: neighbours together, without a copy of keys and values."""
        runs = []
        for _, run in itertools.groupby(enumerate(slots), key=lambda row: row[1] - row[0]):
            rows, run_slots = zip(*run, strict=True)
            own = slice(run_slots[0], run_slots[-1] + 1)
            bias_B11N = self.hidden_SN[own, None, None, seen]
            runs.append((slice(rows[0], rows[-1] + 1), own, bias_B11N))

        def gather(layer: int, q_BHTD: Tensor) -> Tensor:
            parts = []
            for rows, own, bias_B11N in runs:
                keys, values = self.kv_L2SNKD[layer, :, own, seen].transpose(2, 3)
                parts.append(
                    F.scaled_dot_product_attention(
                        q_BHTD[rows], keys, values, attn_mask=bias_B11N, enable_gqa=self.grouped
                    )
                )
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return gather

"""The KV cache of all sessions: one preallocated tensor, a slot for each, written by place, read in one go.

A pass is for a *batch*: some slots, each at a unit of its own. Places that were never written are hidden by a
bias. Keys are kept rotated by their media time, so the order of places means nothing to attention.

Shape suffixes: L layers, 2 keys and values, S slots, N places, K key heads, D head dim, H query heads,
B batch (slots of a pass), T new tokens of each, M = B T, X = K D.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from shared.models.layout import KVBlock, Layout, Tower
from shared.models.tensor_parallel import WHOLE, ShardSpec
from shared.models.transformer import Attend, TransformerConfig


class Places(NamedTuple):
    """Where in the cache the new tokens of a batch go, and what they attend to."""

    slots: tuple[int, ...]
    rows_BT: Tensor
    """Rows of the cache, the places of one slot behind those of another."""
    visible: tuple[slice, ...]
    """Of each slot: what a session gets must not depend on how old the others of its batch are."""

    @property
    def widest(self) -> slice:
        """What is visible to the oldest of them; to the others the rest of it is hidden."""
        return max(self.visible, key=lambda each: each.stop)


class KVCache:
    """Keys and values of `slots` sessions; where ranks share the heads, those of one rank."""

    def __init__(
        self,
        layout: Layout,
        config: TransformerConfig,
        *,
        slots: int = 1,
        share: ShardSpec = WHOLE,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.layout, self.slots = layout, slots
        self._all_heads, self._own_heads = config.kv_heads, share.of(config.kv_heads)
        self.grouped = config.heads != config.kv_heads
        # Token-major: a token's numbers lie together, so that writing and exporting move few long pieces.
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
        """Zero a slot's keys and values and hide all of its places, in place."""
        self.kv_L2SNKD[:, :, slot] = 0.0
        self.hidden_SN[slot] = float("-inf")
        self.hidden_SN[slot, self.layout.scratch] = 0.0

    @staticmethod
    def slice_numbers(layout: Layout, config: TransformerConfig, block: KVBlock) -> int:
        """Numbers in the KV slice of a block, which has the heads of all ranks."""
        return 2 * config.layers * config.kv_heads * config.head_dim * layout.tokens(block)

    def writing(
        self, block: KVBlock, slots: Sequence[int], units: Sequence[int], tower: Tower = Tower.SPEAKING
    ) -> Places:
        """Where a tower's tokens of a block go; they attend to the tower's past and themselves."""
        places = [self.layout.places(block, unit, tower) for unit in units]
        for slot, row in zip(slots, places, strict=True):
            self._reveal(slot, row)
        return self._places(slots, places, [self.layout.visible(tower, unit) for unit in units])

    def solving(self, slots: Sequence[int], units: Sequence[int]) -> Places:
        """Where the noisy tokens of a solve go; they attend to the speaking tower's past and themselves."""
        scratch = self.layout.scratch
        visible = [slice(scratch.start, self.layout.visible(Tower.SPEAKING, unit).stop) for unit in units]
        return self._places(slots, [[scratch] for _ in slots], visible)

    def attend(self, places: Places) -> Attend:
        """An `attend` that stores the new keys and values, then attends to all that is visible."""
        return self._attend(places.rows_BT, self._look_in_place(places))

    def attend_gathered(self, slots_B: Tensor, rows_BT: Tensor, visible: slice) -> Attend:
        """The same on a copy of what is visible, slots in a tensor: can be recorded once for all slots."""
        bias_B11N = self.hidden_SN.index_select(0, slots_B)[:, None, None, visible]

        def look(layer: int, q_BHTD: Tensor) -> Tensor:
            keys, values = self.kv_L2SNKD[layer, :, :, visible].index_select(1, slots_B).transpose(2, 3)
            return self._attention(q_BHTD, keys, values, bias_B11N)

        return self._attend(rows_BT, look)

    def export_kv(self, block: KVBlock, slot: int, unit: int, out: Tensor, first: int = 0) -> None:
        """Copy a block's slice, from layer `first` on, to the flat `out`: as many layers as fit."""
        part = self._by_layer(block, out)
        layers = slice(first, first + len(part))
        for tokens, place in self._tokens_and_places(block, unit):
            part[:, :, tokens] = self.kv_L2SNKD[layers, :, slot, place]

    def import_kv(self, block: KVBlock, slot: int, unit: int, flat: Tensor, first: int = 0) -> None:
        """Write a slice that `export_kv` made; the cache then equals the writer's byte for byte."""
        part = self._by_layer(block, flat)
        layers = slice(first, first + len(part))
        for tokens, place in self._tokens_and_places(block, unit):
            self.kv_L2SNKD[layers, :, slot, place] = part[:, :, tokens]
        self._reveal(slot, self.layout.places(block, unit))

    def _by_layer(self, block: KVBlock, flat: Tensor) -> Tensor:
        """View a flat slice, which has the heads of all ranks, as [layers, 2, T, K, D] of this rank's."""
        heads, dim = self._all_heads, self.kv_L2SNKD.shape[-1]
        tokens = self.layout.tokens(block)
        layers, rest = divmod(flat.numel(), 2 * tokens * heads * dim)
        assert not rest, f"a slice of {flat.numel()} numbers for {tokens} tokens of {heads} x {dim}"
        return flat.view(layers, 2, tokens, heads, dim)[..., self._own_heads, :]

    def _tokens_and_places(self, block: KVBlock, unit: int) -> list[tuple[slice, slice]]:
        at, found = 0, []
        for place in self.layout.places(block, unit):
            length = place.stop - place.start
            found.append((slice(at, at + length), place))
            at += length
        return found

    def _reveal(self, slot: int, places: list[slice]) -> None:
        for place in places:
            self.hidden_SN[slot, place] = 0.0

    def _places(self, slots: Sequence[int], places: list[list[slice]], visible: list[slice]) -> Places:
        rows = [
            [slot * self.layout.capacity + at for place in row for at in range(place.start, place.stop)]
            for slot, row in zip(slots, places, strict=True)
        ]
        return Places(tuple(slots), torch.tensor(rows, device=self.kv_L2SNKD.device), tuple(visible))

    def _attend(self, rows_BT: Tensor, look: Callable[[int, Tensor], Tensor]) -> Attend:
        rows_M = rows_BT.flatten()

        def attend(layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
            keys, values = self._rows_L2MX[layer]
            keys.index_copy_(0, rows_M, k_BTKD.reshape(len(rows_M), -1))
            values.index_copy_(0, rows_M, v_BTKD.reshape(len(rows_M), -1))
            return look(layer, q_BTHD.transpose(1, 2)).transpose(1, 2)

        return attend

    def _look_in_place(self, places: Places) -> Callable[[int, Tensor], Tensor]:
        """Attention without a copy of keys and values; neighbours with as much visible go together."""
        runs = []
        batch = enumerate(zip(places.slots, places.visible, strict=True))
        for (_, end), run in itertools.groupby(batch, key=lambda row: (row[1][0] - row[0], row[1][1].stop)):
            rows, whose = zip(*run, strict=True)
            own, visible = slice(whose[0][0], whose[-1][0] + 1), slice(whose[0][1].start, end)
            runs.append(
                (slice(rows[0], rows[-1] + 1), own, visible, self.hidden_SN[own, None, None, visible])
            )

        def look(layer: int, q_BHTD: Tensor) -> Tensor:
            parts = []
            for rows, own, visible, bias_B11N in runs:
                keys, values = self.kv_L2SNKD[layer, :, own, visible].transpose(2, 3)
                parts.append(self._attention(q_BHTD[rows], keys, values, bias_B11N))
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return look

    def _attention(self, q_BHTD: Tensor, k_BKND: Tensor, v_BKND: Tensor, bias_B11N: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q_BHTD, k_BKND, v_BKND, attn_mask=bias_B11N, enable_gqa=self.grouped
        )

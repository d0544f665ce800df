"""How a KV slice is cut for its way: in one packed piece, or layer by layer while later layers compute.

And which process remembers: the Thinker, or the Performer as soon as it has solved. Either then sends the
slice to the other.

One piece is the least work; pieces of layers take the exchange of a large slice off the critical path. What
is large was measured: docs/performance.md.
"""

from __future__ import annotations

import enum
from typing import Any

from shared.models.family import Family
from shared.models.layout import KVBlock

LAYERWISE_FROM_BYTES = 4_000_000
PIECE_BYTES = 1_000_000  # at least so much travels at a time


class ChunkMode(enum.Enum):
    """How slices travel; AUTO goes by their size."""

    AUTO = "auto"
    PACKED = "packed"
    LAYERWISE = "layerwise"


class Rememberer(enum.Enum):
    """Who runs the pass over the clean latents."""

    THINKER = "thinker"
    PERFORMER = "performer"


def layers_a_piece(family: Family[Any, Any], block: KVBlock, exchange: ChunkMode) -> int:
    """How many layers of the block's slice travel in one message."""
    slice_bytes = family.slice_bytes(block)
    packed = exchange is ChunkMode.PACKED
    if packed or (exchange is ChunkMode.AUTO and slice_bytes < LAYERWISE_FROM_BYTES):
        return family.layers
    if exchange is ChunkMode.LAYERWISE and slice_bytes < PIECE_BYTES:
        return 1
    return min(family.layers, -(-PIECE_BYTES * family.layers // slice_bytes))


def largest_messages(
    family: Family[Any, Any], exchange: ChunkMode, rememberer: Rememberer
) -> tuple[int, int]:
    """Bytes of the largest payloads from Thinker to Performer, and back."""
    there = max(
        family.slice_bytes(block) // family.layers * layers_a_piece(family, block, exchange)
        for block in KVBlock
    )
    back = family.slice_bytes(KVBlock.COMMIT) if rememberer is Rememberer.PERFORMER else 0
    return there, max(family.latent_bytes, back)

"""How a KV slice is cut for its way: in one packed piece, or layer by layer while later layers compute.

One piece is the least work; pieces of layers take the exchange of a large slice off the critical path. What
is large was measured: docs/performance.md.
"""

import enum

from shared.models.family import Family
from shared.models.layout import KVBlock

LAYERWISE_FROM_BYTES = 4_000_000
PIECE_BYTES = 1_000_000  # at least so much travels at a time


class ChunkMode(enum.Enum):
    """How slices travel; AUTO goes by their size."""

    AUTO = "auto"
    PACKED = "packed"
    LAYERWISE = "layerwise"


def layers_a_piece(family: Family, block: KVBlock, chunk_mode: ChunkMode) -> int:
    """How many layers of the block's slice travel in one message."""
    slice_bytes = family.slice_bytes(block)
    packed = chunk_mode is ChunkMode.PACKED
    if packed or (chunk_mode is ChunkMode.AUTO and slice_bytes < LAYERWISE_FROM_BYTES):
        return family.layers
    if chunk_mode is ChunkMode.LAYERWISE and slice_bytes < PIECE_BYTES:
        return 1
    return min(family.layers, -(-PIECE_BYTES * family.layers // slice_bytes))


def largest_slice_bytes(family: Family, chunk_mode: ChunkMode) -> int:
    """Bytes of the largest message with keys and values."""
    return max(
        family.slice_bytes(block) // family.layers * layers_a_piece(family, block, chunk_mode)
        for block in KVBlock
    )

"""Both ends of a link in one process: for tests, and for running a model without a second process.

The same rings as between two processes, over memory of this one. One thread may use both ends, or two.
"""

import mmap
import socket

import torch

from shared.links.base import LinkEnd, LinkShape
from shared.links.peer import Peer
from shared.links.shm import MemoryRing, end_over_rings, ring_bytes


def loopback_pair(shape: LinkShape) -> tuple[LinkEnd, LinkEnd]:
    """The Thinker's and the Performer's end of one link."""
    thinker_line, performer_line = socket.socketpair()
    slices = _ring_in_memory(shape.slice_bytes, shape.depth)
    latents = _ring_in_memory(shape.latent_bytes, shape.depth)
    # Each end closes its own descriptors, so the second end gets duplicates.
    to_performer, from_thinker = slices, slices.duplicate()
    to_thinker, from_performer = latents.duplicate(), latents
    return (
        end_over_rings("loopback", to_performer, from_performer, Peer("performer", thinker_line)),
        end_over_rings("loopback", to_thinker, from_thinker, Peer("thinker", performer_line)),
    )


def _ring_in_memory(max_bytes: int, depth: int) -> MemoryRing:
    # An anonymous mapping and not a bytearray: it starts on a page, so that messages are aligned.
    memory = mmap.mmap(-1, ring_bytes(max_bytes, depth))
    return MemoryRing.create(max_bytes, depth, torch.frombuffer(memory, dtype=torch.uint8))

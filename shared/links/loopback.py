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
    """The ends of one link: the Thinker's, which `shape` is seen from, and the Performer's."""
    thinker_connection, performer_connection = socket.socketpair()
    there = _ring_in_memory(shape.to_peer, shape.depth)
    back = _ring_in_memory(shape.from_peer, shape.depth)
    # Each end closes its own descriptors, so the second end gets duplicates.
    return (
        end_over_rings("loopback", there, back.duplicate(), Peer("performer", thinker_connection)),
        end_over_rings("loopback", back, there.duplicate(), Peer("thinker", performer_connection)),
    )


def _ring_in_memory(max_bytes: int, depth: int) -> MemoryRing:
    # An anonymous mapping and not a bytearray: it starts on a page, so that messages are aligned.
    memory = mmap.mmap(-1, ring_bytes(max_bytes, depth))
    return MemoryRing.create(max_bytes, depth, torch.frombuffer(memory, dtype=torch.uint8))

"""The link over gloo (torch.distributed): between two hosts, or as the portable way on one.

A process group of two ranks, with a tag for each direction. Three things about gloo shape this file:

- Header and payload travel as one message of its real size, into a receive posted with the largest
  size: gloo takes a message that is shorter than the buffer. Measured round trip of 64 kB on one host (p50):
  so 0.18 ms; with the size sent first 0.35 ms; always the whole buffer of 1 MB 0.9 ms.
- Work can't be polled: it completes inside its own `wait`. And a `wait` that times out does not give up one
  message, it breaks the whole group. So a thread for each direction waits, without limit and without the
  GIL, and counts what completes for the ring, on which the model thread can wait with a deadline.
- Data moves when the receive is posted. Receives are posted for every slot from the start, and again at each
  release, so that a slice leaves when it is committed; slots that are not released hold the sender back.
"""

from contextlib import ExitStack, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from shared.links.base import LinkEnd, LinkShape
from shared.links.peer import Peer
from shared.links.process_groups import (
    PERFORMER_RANK,
    THINKER_RANK,
    Exchange,
    meet_over_gloo,
    open_door,
    own_store,
    store_at,
)
from shared.links.ring import RingReceiver, RingSender, Slot, slot_bytes
from shared.links.transfer_thread import FLUSH_S, TransferThread
from shared.links.waiting import Semaphore, Tally
from shared.slices import HEADER_BYTES

_NO_LIMIT = timedelta(days=3650)
_CLOSING_TAG = 2  # no message has it; messages have the rank of their receiver


class GlooOffer:
    """The Thinker's side before the Performer has answered."""

    def __init__(self, shape: LinkShape, own_host: str) -> None:
        self._shape = shape
        self._host = own_host
        self._door = open_door(own_host)
        self.address = str(self._door.getsockname()[1])
        """What the Performer needs to find this side: a port at the address that it called."""

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        """Meet the Performer in a process group.

        Raises:
            RuntimeError: it did not come in time, or went.
        """
        store = own_store(self._door, timeout_s)
        group = meet_over_gloo(store, THINKER_RANK, 2, self._host, timeout_s)
        return _end(group, THINKER_RANK, self._shape, peer)

    def close(self) -> None:
        """Close the door through which the group is set up."""
        self._door.close()


def join_gloo(address: str, shape: LinkShape, peer: Peer, timeout_s: float) -> LinkEnd:
    """The Performer's side: meet the Thinker, which offered `address`, in a process group.

    Raises:
        RuntimeError: the Thinker is not there, or did not answer in time.
    """
    own_host, thinker_host = peer.hosts()
    store = store_at(thinker_host, int(address), timeout_s)
    group = meet_over_gloo(store, PERFORMER_RANK, 2, own_host, timeout_s)
    return _end(group, PERFORMER_RANK, shape, peer)


def _end(group: Exchange, rank: int, shape: LinkShape, peer: Peer) -> LinkEnd:
    exchange = _Exchange(group, rank, shape, peer)
    resources = ExitStack()
    resources.callback(exchange.close)
    return LinkEnd(
        kind="gloo", sender=exchange.sender, receiver=exchange.receiver, peer=peer, resources=resources
    )


class _Exchange:
    """Both directions of one end: tensors as slots, and what becomes of the work on them."""

    def __init__(self, group: Exchange, rank: int, shape: LinkShape, peer: Peer) -> None:
        out_bytes, in_bytes = shape.slice_bytes, shape.latent_bytes
        if rank == PERFORMER_RANK:
            out_bytes, in_bytes = in_bytes, out_bytes
        self._group = group
        self._rank = rank
        self._peer = peer
        self._out_slots = _allocate(out_bytes, shape.depth)
        self._in_slots = _allocate(in_bytes, shape.depth)
        released, ready = Tally.create(), Semaphore.create()
        self._sent = TransferThread[dist.Work]("gloo-sent", released, peer, _complete)
        self._received = TransferThread[dist.Work]("gloo-received", ready, peer, _complete)
        for index in range(shape.depth):
            self._post(index)
        self.sender = RingSender(
            max_bytes=out_bytes,
            slots=[Slot.over(memory, out_bytes) for memory in self._out_slots],
            released=released,
            publish=self._send,
            peer=peer,
        )
        self.receiver = RingReceiver(
            max_bytes=in_bytes,
            slots=[Slot.over(memory, in_bytes) for memory in self._in_slots],
            ready=ready,
            recycle=self._post,
            peer=peer,
            # The line's end can overtake the last messages; the group's own end can't, and ends the thread.
            settle=lambda: self._received.join(FLUSH_S),
        )

    def _send(self, index: int, num_bytes: int) -> None:
        peer_rank = 1 - self._rank
        with self._sent.ending_with_the_exchange():
            message = self._out_slots[index][: HEADER_BYTES + num_bytes]
            self._sent.give(self._group.send([message], peer_rank, peer_rank))

    def _post(self, index: int) -> None:
        with self._received.ending_with_the_exchange():
            self._received.give(self._group.recv([self._in_slots[index]], 1 - self._rank, self._rank))

    def close(self) -> None:
        self._sent.finish()
        self._sent.join(FLUSH_S)
        # There is no call that ends a posted receive, but a wait that times out ends them all.
        with suppress(RuntimeError):
            scratch = torch.empty(1, dtype=torch.uint8)
            self._group.recv([scratch], 1 - self._rank, _CLOSING_TAG).wait(timedelta(milliseconds=1))
        self._received.finish()
        for courier in (self._sent, self._received):
            courier.close()


def _complete(work: dist.Work) -> None:
    work.wait(_NO_LIMIT)


def _allocate(max_bytes: int, depth: int) -> list[torch.Tensor]:
    return [torch.zeros(slot_bytes(max_bytes), dtype=torch.uint8) for _ in range(depth)]

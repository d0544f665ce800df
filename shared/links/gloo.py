"""The link over gloo (torch.distributed): between two hosts, or as the portable way on one.

A process group of two ranks, with a tag for each direction. Three things about gloo shape this file:

- Header and payload travel as one message of its real size, into a receive posted with the largest
  size: gloo takes a message that is shorter than the buffer. Measured round trip of 64 kB on one host (p50):
  so 0.18 ms; with the size sent first 0.35 ms; always the whole buffer of 1 MB 0.9 ms.
- Work can't be polled: it completes inside its own `wait`. And a `wait` that times out does not give up one
  message, it breaks the whole group. So a thread for each direction waits, without limit and without the
  GIL, and counts what completes for the ring, on which the model thread can wait with a deadline.
- Data moves when the receive is posted. Receives are posted for every buffer from the start, and again at
  each release, so that a slice leaves when it is committed; what is not released holds the sender back.
"""

import secrets
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # not in torch's stubs

from shared.links.base import LinkEnd, LinkShape
from shared.links.peer import Peer
from shared.links.process_groups import (
    JOINER_RANK,
    LISTENER_RANK,
    PointToPointGroup,
    gloo_group,
    host_store,
    join_store,
    listen_on,
)
from shared.links.ring import MessageBuffer, RingReceiver, RingSender, buffer_bytes
from shared.links.transfer_thread import FLUSH_S, TransferThread
from shared.links.waiting import ring_counts
from shared.slices import HEADER_BYTES

_NO_LIMIT = timedelta(days=3650)
_CLOSING_TAG = 2  # no message has it; messages have the rank of their receiver


class GlooOffer:
    """The listening side before the other has joined."""

    def __init__(self, shape: LinkShape, own_host: str) -> None:
        self._shape = shape
        self._host = own_host
        self._token = secrets.token_hex(16)
        self._listener = listen_on(own_host)
        self.address = f"{self._listener.getsockname()[1]} {self._token}"

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        store = host_store(self._listener, timeout_s)
        group = gloo_group(PrefixStore(self._token, store), LISTENER_RANK, 2, self._host, timeout_s)
        return _end(group, LISTENER_RANK, self._shape, peer)

    def close(self) -> None:
        self._listener.close()  # unless the store has taken it over


def join_gloo(address: str, shape: LinkShape, peer: Peer, timeout_s: float) -> LinkEnd:
    """The joining side: form a process group with the peer, which offered `address`.

    Raises:
        RuntimeError: the peer is not there, or did not answer in time.
    """
    own_host, peer_host = peer.hosts()
    port, token = address.split()
    store = join_store(peer_host, int(port), timeout_s)
    group = gloo_group(PrefixStore(token, store), JOINER_RANK, 2, own_host, timeout_s)
    return _end(group, JOINER_RANK, shape, peer)


def _end(group: PointToPointGroup, rank: int, shape: LinkShape, peer: Peer) -> LinkEnd:
    transport = _GlooTransport(group, rank, shape, peer)
    return LinkEnd(
        kind="gloo", sender=transport.sender, receiver=transport.receiver, peer=peer, release=transport.close
    )


class _GlooTransport:
    """Both directions of one end: tensors as buffers, and what becomes of the work on them."""

    def __init__(self, group: PointToPointGroup, rank: int, shape: LinkShape, peer: Peer) -> None:
        self._group = group
        self._rank = rank
        self._out_buffers = _allocate(shape.to_peer, shape.depth)
        self._in_buffers = _allocate(shape.from_peer, shape.depth)
        released, ready = ring_counts()
        self._sent = TransferThread[dist.Work]("gloo-sent", released, peer, _complete)
        self._received = TransferThread[dist.Work]("gloo-received", ready, peer, _complete)
        for index in range(shape.depth):
            self._post(index)
        to_send = [MessageBuffer.over(memory, shape.to_peer) for memory in self._out_buffers]
        to_receive = [MessageBuffer.over(memory, shape.from_peer) for memory in self._in_buffers]
        self.sender = RingSender(buffers=to_send, released=released, publish=self._send, peer=peer)
        self.receiver = RingReceiver(
            buffers=to_receive, ready=ready, recycle=self._post, peer=peer, wipes=True,
            # The peer's connection can end before its last messages come; the group's end ends the thread.
            drain=lambda: self._received.join(FLUSH_S),
        )  # fmt: skip

    def _send(self, index: int, num_bytes: int) -> None:
        peer_rank = 1 - self._rank
        with self._sent.ending_on_refusal():
            message = self._out_buffers[index][: HEADER_BYTES + num_bytes]
            self._sent.submit(self._group.send([message], peer_rank, peer_rank))

    def _post(self, index: int) -> None:
        with self._received.ending_on_refusal():
            self._received.submit(self._group.recv([self._in_buffers[index]], 1 - self._rank, self._rank))

    def close(self) -> None:
        self._sent.finish()
        self._sent.join(FLUSH_S)
        # There is no call that ends a posted receive, but a wait that times out ends them all.
        with suppress(RuntimeError):
            scratch = torch.empty(1, dtype=torch.uint8)
            self._group.recv([scratch], 1 - self._rank, _CLOSING_TAG).wait(timedelta(milliseconds=1))
        self._received.finish()
        for thread in (self._sent, self._received):
            thread.close()


def _complete(work: dist.Work) -> None:
    work.wait(_NO_LIMIT)


def _allocate(max_bytes: int, depth: int) -> list[torch.Tensor]:
    return [torch.zeros(buffer_bytes(max_bytes), dtype=torch.uint8) for _ in range(depth)]

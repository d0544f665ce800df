"""The link between two processes of one host: rings in shared memory, woken through eventfds.

Memory and counts have no names: the listening side makes them (memfd, eventfd) and hands the descriptors to
the other over an abstract Unix socket, so that nothing can be left behind in /dev/shm or /tmp, however a
process ends. The kernel frees them with the last process that holds them. The socket's name can't be guessed,
but every user of the host can list it: each side asks the kernel which user the other runs as.
"""

import itertools
import mmap
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from shared.errors import LinkUnavailable
from shared.links.base import LinkEnd, LinkShape
from shared.links.peer import Peer
from shared.links.ring import MessageBuffer, RingReceiver, RingSender, buffer_bytes
from shared.links.waiting import EventCounter, EventSemaphore, Poller, ring_counts

_NUM_FDS = 5
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRing:
    """One direction over memory that both ends see."""

    buffers: Sequence[MessageBuffer]
    order: memoryview
    """uint32[depth]: which buffer message m lies in is said at m % depth."""
    released: EventCounter
    ready: EventSemaphore

    @classmethod
    def create(cls, max_bytes: int, depth: int, memory: Tensor) -> Self:
        """A ring with new counts; `memory` is uint8[ring_bytes(max_bytes, depth)]."""
        return cls.over(max_bytes, depth, memory, *ring_counts())

    @classmethod
    def over(
        cls, max_bytes: int, depth: int, memory: Tensor, released: EventCounter, ready: EventSemaphore
    ) -> Self:
        """A ring that the other end has made."""
        first, *parts = torch.split(memory, [_order_bytes(depth), *depth * [buffer_bytes(max_bytes)]])
        return cls(
            buffers=[MessageBuffer.over(part, max_bytes) for part in parts],
            order=first.numpy().data.cast("I")[:depth], released=released, ready=ready,
        )  # fmt: skip

    def duplicate(self) -> Self:
        """The same ring with descriptors of its own."""
        return replace(
            self,
            released=EventCounter(os.dup(self.released.fileno())),
            ready=EventSemaphore(os.dup(self.ready.fileno())),
        )

    def sender(self, peer: Peer) -> RingSender:
        turns = itertools.cycle(range(len(self.buffers)))

        def publish(index: int, num_bytes: int) -> None:  # noqa: ARG001 — the message lies where it is read
            self.order[next(turns)] = index
            self.ready.add()

        return RingSender(buffers=self.buffers, released=self.released, publish=publish, peer=peer)

    def receiver(self, peer: Peer) -> RingReceiver:
        def recycle(index: int) -> None:  # noqa: ARG001
            self.released.add()

        return RingReceiver(
            buffers=self.buffers, ready=self.ready, recycle=recycle, peer=peer, order=self.order
        )

    def close(self) -> None:
        """Close the descriptors; the memory goes with the last view of it."""
        self.released.close()
        self.ready.close()


def ring_bytes(max_bytes: int, depth: int) -> int:
    """Memory of one direction."""
    return _order_bytes(depth) + depth * buffer_bytes(max_bytes)


def _order_bytes(depth: int) -> int:
    return -(-4 * depth // 64) * 64


def end_over_rings(kind: str, outgoing: MemoryRing, incoming: MemoryRing, peer: Peer) -> LinkEnd:
    """An end that writes to one ring and reads from the other."""

    def release() -> None:
        outgoing.close()
        incoming.close()

    sender, receiver = outgoing.sender(peer), incoming.receiver(peer)
    return LinkEnd(kind=kind, sender=sender, receiver=receiver, peer=peer, release=release)


class ShmOffer:
    """The listening side before the other has joined."""

    def __init__(self, shape: LinkShape) -> None:
        """Make memory and counts.

        Raises:
            OSError: the system has no memory or no descriptors left; nothing stays open then.
        """
        with ExitStack() as undo:
            self._memory_fd = os.memfd_create("thinker-performer", os.MFD_CLOEXEC)
            undo.callback(os.close, self._memory_fd)
            self._listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            # A leading zero makes the name abstract: it lives in the network namespace and not in a folder.
            self.address = f"thinker-performer-{secrets.token_hex(16)}"
            self._listener.bind(f"\0{self.address}")
            self._listener.listen()
            to_peer, from_peer = _split(_map(self._memory_fd, shape), shape.to_peer, shape.depth)
            with ExitStack() as rings:
                self._outgoing = rings.enter_context(
                    closing(MemoryRing.create(shape.to_peer, shape.depth, to_peer))
                )
                self._incoming = rings.enter_context(
                    closing(MemoryRing.create(shape.from_peer, shape.depth, from_peer))
                )
                self._rings = rings.pop_all()
            self._setup = undo.pop_all()

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        rings = (self._outgoing, self._incoming)
        counts = [count.fileno() for ring in rings for count in (ring.released, ring.ready)]
        with self._accept(peer, time.monotonic() + timeout_s) as connection:
            socket.send_fds(connection, [b"\0"], [self._memory_fd, *counts])
        self._rings.pop_all()
        return end_over_rings("shm", self._outgoing, self._incoming, peer)

    def close(self) -> None:
        """Drop what only the set-up needed, and all the rest if the link was not opened."""
        self._setup.close()
        self._rings.close()

    def _accept(self, peer: Peer, deadline: float) -> socket.socket:
        """The next connection of a process of the same user; others are hung up on."""
        refusal: Exception = ConnectionError("it hung up")
        calls = Poller((self._listener.fileno(),))
        either = Poller((self._listener.fileno(), peer.fileno()))
        while either.wait(max(0.0, deadline - time.monotonic())):
            if not calls.wait(0):
                if peer.gone():
                    raise refusal
                continue
            connection, _ = self._listener.accept()
            try:
                _check_same_user(connection)
            except LinkUnavailable as error:
                connection.close()
                refusal = error
            else:
                connection.settimeout(max(1e-3, deadline - time.monotonic()))
                return connection
        raise TimeoutError("it did not join in time")


def join_shm(address: str, shape: LinkShape, peer: Peer, timeout_s: float) -> LinkEnd:
    """The joining side: fetch the descriptors from the peer's `address`.

    Raises:
        OSError: the peer is not there, or did not answer in time.
        LinkUnavailable: it runs as another user.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{address}")
        _check_same_user(connection)
        _, fds, _, _ = socket.recv_fds(connection, 1, _NUM_FDS)
    with ExitStack() as undo:
        for fd in fds:
            undo.callback(os.close, fd)
        for fd in fds:
            os.set_inheritable(fd, False)
        if len(fds) != _NUM_FDS:
            raise ConnectionError(
                f"the {peer.name} handed over {len(fds)} descriptors, {_NUM_FDS} are needed"
            )
        memory_fd, in_released, in_ready, out_released, out_ready = fds
        from_peer, to_peer = _split(_map(memory_fd, shape), shape.from_peer, shape.depth)
        undo.pop_all()
    os.close(memory_fd)
    incoming = MemoryRing.over(
        shape.from_peer, shape.depth, from_peer, EventCounter(in_released), EventSemaphore(in_ready)
    )
    outgoing = MemoryRing.over(
        shape.to_peer, shape.depth, to_peer, EventCounter(out_released), EventSemaphore(out_ready)
    )
    return end_over_rings("shm", outgoing, incoming, peer)


def _map(memory_fd: int, shape: LinkShape) -> Tensor:
    size = ring_bytes(shape.to_peer, shape.depth) + ring_bytes(shape.from_peer, shape.depth)
    os.ftruncate(memory_fd, size)
    # All pages now: none has to be found while a message waits.
    memory = mmap.mmap(memory_fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _split(memory: Tensor, first_bytes: int, depth: int) -> tuple[Tensor, Tensor]:
    """The ring that the listening side fills, for payloads of up to `first_bytes`, and the other one."""
    end = ring_bytes(first_bytes, depth)
    return memory[:end], memory[end:]


def _check_same_user(connection: socket.socket) -> None:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, other, _ = _CREDENTIALS.unpack(credentials)
    if other != (own := os.getuid()):
        raise LinkUnavailable(f"link shm: this process runs as user {own}, the other side as user {other}")

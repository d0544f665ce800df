"""The link between two processes of one host: rings in shared memory, woken through eventfds.

Memory and counts have no names: the Thinker makes them (memfd, eventfd) and hands the descriptors to the
Performer over an abstract Unix socket, so that nothing can be left behind in /dev/shm or /tmp, however a
process ends. The kernel frees them with the last process that holds them.
"""

import itertools
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from shared.errors import LinkUnavailable
from shared.links.base import LinkEnd, LinkShape
from shared.links.peer import Peer
from shared.links.ring import RingReceiver, RingSender, Slot, slot_bytes
from shared.links.waiting import Semaphore, Tally

_NUM_FDS = 5
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRing:
    """One direction over memory that both ends see."""

    max_bytes: int
    slots: Sequence[Slot]
    order: memoryview
    """uint32[depth]: which slot message m lies in is said at m % depth."""
    released: Tally
    ready: Semaphore

    @classmethod
    def create(cls, max_bytes: int, depth: int, memory: Tensor) -> Self:
        """A ring with new counts; `memory` is uint8[ring_bytes(max_bytes, depth)]."""
        return cls.over(max_bytes, depth, memory, Tally.create(), Semaphore.create())

    @classmethod
    def over(cls, max_bytes: int, depth: int, memory: Tensor, released: Tally, ready: Semaphore) -> Self:
        """A ring that the other end has made."""
        first, *parts = torch.split(memory, [_order_bytes(depth), *depth * [slot_bytes(max_bytes)]])
        return cls(
            max_bytes=max_bytes, slots=[Slot.over(part, max_bytes) for part in parts],
            order=first.numpy().data.cast("I")[:depth], released=released, ready=ready,
        )  # fmt: skip

    def duplicate(self) -> Self:
        """The same ring with descriptors of its own."""
        released, ready = Tally(os.dup(self.released.fileno())), Semaphore(os.dup(self.ready.fileno()))
        return replace(self, released=released, ready=ready)

    def sender(self, peer: Peer) -> RingSender:
        """The writing end."""
        turns = itertools.cycle(range(len(self.slots)))

        def publish(index: int, num_bytes: int) -> None:  # noqa: ARG001 — the message lies where it is read
            self.order[next(turns)] = index
            self.ready.add()

        return RingSender(
            max_bytes=self.max_bytes, slots=self.slots, released=self.released, publish=publish, peer=peer
        )

    def receiver(self, peer: Peer) -> RingReceiver:
        """The reading end."""

        def recycle(index: int) -> None:  # noqa: ARG001
            self.released.add()

        return RingReceiver(
            max_bytes=self.max_bytes, slots=self.slots, ready=self.ready, recycle=recycle, peer=peer,
            order=self.order,
        )  # fmt: skip

    def close(self) -> None:
        """Close the descriptors; the memory goes with the last view of it."""
        self.released.close()
        self.ready.close()


def ring_bytes(max_bytes: int, depth: int) -> int:
    """Memory of one direction."""
    return _order_bytes(depth) + depth * slot_bytes(max_bytes)


def _order_bytes(depth: int) -> int:
    return -(-4 * depth // 64) * 64


def end_over_rings(kind: str, outgoing: MemoryRing, incoming: MemoryRing, peer: Peer) -> LinkEnd:
    """An end that writes to one ring and reads from the other."""
    resources = ExitStack()
    resources.callback(outgoing.close)
    resources.callback(incoming.close)
    return LinkEnd(
        kind=kind,
        sender=outgoing.sender(peer),
        receiver=incoming.receiver(peer),
        peer=peer,
        resources=resources,
    )


class ShmOffer:
    """The Thinker's side before the Performer has answered."""

    def __init__(self, shape: LinkShape) -> None:
        """Make memory and counts.

        Raises:
            OSError: the system has no memory or no descriptors left.
        """
        self._resources = ExitStack()
        self._memory_fd = os.memfd_create("thinker-performer", os.MFD_CLOEXEC)
        self._resources.callback(os.close, self._memory_fd)
        slices, latents = _split(_map(self._memory_fd, shape), shape)
        self._outgoing = MemoryRing.create(shape.slice_bytes, shape.depth, slices)
        self._incoming = MemoryRing.create(shape.latent_bytes, shape.depth, latents)
        self._door = self._resources.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        # A leading zero makes the name abstract: it lives in the network namespace and not in a folder.
        self.address = f"thinker-performer-{secrets.token_hex(16)}"
        """What the Performer needs to find this side."""
        self._door.bind(f"\0{self.address}")
        self._door.listen(1)
        self._opened = False

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        """Hand the descriptors to the Performer.

        Raises:
            OSError: it did not come in time, or went.
            LinkUnavailable: it runs as another user.
        """
        rings = (self._outgoing, self._incoming)
        counts = [count.fileno() for ring in rings for count in (ring.released, ring.ready)]
        self._hand_over([self._memory_fd, *counts], timeout_s)
        self._opened = True
        return end_over_rings("shm", self._outgoing, self._incoming, peer)

    def close(self) -> None:
        """Drop what only the set-up needed, and all the rest if the link was not opened."""
        self._resources.close()
        if not self._opened:
            self._outgoing.close()
            self._incoming.close()

    def _hand_over(self, fds: list[int], timeout_s: float) -> None:
        self._door.settimeout(timeout_s)
        connection, _ = self._door.accept()
        with connection:
            connection.settimeout(timeout_s)
            _check_same_user(connection)
            socket.send_fds(connection, [b"\0"], fds)


def join_shm(address: str, shape: LinkShape, peer: Peer, timeout_s: float) -> LinkEnd:
    """The Performer's side: fetch the descriptors from the Thinker's `address`.

    Raises:
        OSError: the Thinker is not there, or did not answer in time.
        LinkUnavailable: it runs as another user.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(f"\0{address}")
        _check_same_user(connection)
        _, fds, _, _ = socket.recv_fds(connection, 1, _NUM_FDS)
    if len(fds) != _NUM_FDS:
        for fd in fds:
            os.close(fd)
        raise ConnectionError(f"the thinker handed over {len(fds)} descriptors, {_NUM_FDS} are needed")
    memory_fd, slices_released, slices_ready, latents_released, latents_ready = fds
    for fd in fds:
        os.set_inheritable(fd, False)
    try:
        slices, latents = _split(_map(memory_fd, shape), shape)
    finally:
        os.close(memory_fd)
    incoming = MemoryRing.over(
        shape.slice_bytes, shape.depth, slices, Tally(slices_released), Semaphore(slices_ready)
    )
    outgoing = MemoryRing.over(
        shape.latent_bytes, shape.depth, latents, Tally(latents_released), Semaphore(latents_ready)
    )
    return end_over_rings("shm", outgoing, incoming, peer)


def _map(memory_fd: int, shape: LinkShape) -> Tensor:
    size = ring_bytes(shape.slice_bytes, shape.depth) + ring_bytes(shape.latent_bytes, shape.depth)
    os.ftruncate(memory_fd, size)
    # All pages now: none has to be found while a message waits.
    memory = mmap.mmap(memory_fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _split(memory: Tensor, shape: LinkShape) -> tuple[Tensor, Tensor]:
    """The ring of slices and the ring of latents in the one piece of memory."""
    slices_end = ring_bytes(shape.slice_bytes, shape.depth)
    return memory[:slices_end], memory[slices_end:]


def _check_same_user(connection: socket.socket) -> None:
    """Refuse a stranger: names of abstract sockets can be read by every user of the host."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    if user != os.getuid():
        raise LinkUnavailable(
            f"link shm: this process runs as user {os.getuid()}, the other side as user {user}"
        )

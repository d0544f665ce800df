"""A ring of preallocated slots: the two ends of one direction, for every link that this project brings.

Two semaphores make it: `free` counts slots that the sender may fill, `ready` counts messages that the
receiver may take. What moves a filled slot across, and an emptied one back, is the link's own business.

A slot is 64 bytes, of which the first 8 say how long the message is, and then the message.
"""

import struct
import time
from collections.abc import Callable, Sequence

from shared.errors import LinkClosed, LinkTimeout
from shared.links.peer import Peer
from shared.links.waiting import Poller, Semaphore

PREAMBLE_BYTES = 64
"""Before the message in a slot; a whole cache line, so that messages are aligned for vector loads."""

_LENGTH = struct.Struct("<Q")


def slot_bytes(max_bytes: int) -> int:
    """Size of a slot for messages of up to `max_bytes`, a multiple of 64."""
    return PREAMBLE_BYTES + -(-max_bytes // 64) * 64


class RingSender:
    """The writing end; see `shared.links.base.Sender`."""

    def __init__(
        self,
        *,
        max_bytes: int,
        slots: Sequence[memoryview],
        free: Semaphore,
        publish: Callable[[int, int], None],
        peer: Peer,
    ) -> None:
        """Make the end over `slots`, of `slot_bytes(max_bytes)` each.

        Args:
            max_bytes: Largest message.
            slots: The ring, writable.
            free: Counts the slots that may be filled; starts at their number.
            publish: Called with a slot's index and the bytes to move, preamble included.
            peer: Who reads.
        """
        self.max_bytes = max_bytes
        self._slots = slots
        self._messages = [slot[PREAMBLE_BYTES : PREAMBLE_BYTES + max_bytes] for slot in slots]
        self._free = free
        self._publish = publish
        self._peer = peer
        self._label = f"link to the {peer.name}"
        self._poller = Poller((free.fileno(), peer.fileno()))
        self._index = 0
        self._reserved = False
        self._closed = False

    def reserve(self, timeout_s: float) -> memoryview:
        """See `Sender.reserve`."""
        if self._closed:
            raise LinkClosed(f"{self._label}: this end was closed")
        if self._peer.gone():
            raise _gone(self._label, self._peer)
        if not self._reserved:
            self._reserved = self._take_free(timeout_s)
        return self._messages[self._index]

    def commit(self, num_bytes: int) -> None:
        """See `Sender.commit`."""
        assert self._reserved, "commit without reserve"
        assert 0 <= num_bytes <= self.max_bytes, f"{num_bytes} bytes in a buffer of {self.max_bytes}"
        _LENGTH.pack_into(self._slots[self._index], 0, num_bytes)
        self._publish(self._index, PREAMBLE_BYTES + num_bytes)
        self._index = (self._index + 1) % len(self._slots)
        self._reserved = False

    def close(self) -> None:
        """Refuse further use; the slots are not touched."""
        self._closed = True

    def _take_free(self, timeout_s: float) -> bool:
        if _take(self._free, self._poller, self._peer, timeout_s):
            return True
        if self._peer.gone():
            raise _gone(self._label, self._peer)
        in_flight = f"{len(self._slots)} messages are in flight"
        raise LinkTimeout(f"{self._label}: it freed no buffer within {timeout_s:.3g} s, {in_flight}")


class RingReceiver:
    """The reading end; see `shared.links.base.Receiver`."""

    def __init__(
        self,
        *,
        max_bytes: int,
        slots: Sequence[memoryview],
        ready: Semaphore,
        recycle: Callable[[int], None],
        peer: Peer,
        settle: Callable[[], None] | None = None,
    ) -> None:
        """Make the end over `slots`, of `slot_bytes(max_bytes)` each.

        Args:
            max_bytes: Largest message.
            slots: The ring.
            ready: Counts the messages that may be taken.
            recycle: Called with the index of a slot whose message was released.
            peer: Who writes.
            settle: Called when the peer is gone, before `ready` is believed: for a link on which messages
                can still be under way then. Must return in bounded time.
        """
        self.max_bytes = max_bytes
        self._slots = slots
        self._ready = ready
        self._recycle = recycle
        self._peer = peer
        self._label = f"link from the {peer.name}"
        self._settle = settle
        self._poller = Poller(self.filenos_of(ready, peer))
        self._index = 0
        self._held = False
        self._closed = False

    @staticmethod
    def filenos_of(ready: Semaphore, peer: Peer) -> tuple[int, int]:
        """What is readable when a message, or the peer's end, is there."""
        return ready.fileno(), peer.fileno()

    def poll(self) -> memoryview | None:
        """See `Receiver.poll`."""
        self._check_open()
        assert not self._held, "the last message was not released"
        if self._ready.take() or (self._peer.gone() and self._take_last()):
            return self._hold()
        return None

    def receive(self, timeout_s: float) -> memoryview:
        """See `Receiver.receive`."""
        self._check_open()
        assert not self._held, "the last message was not released"
        if _take(self._ready, self._poller, self._peer, timeout_s) or (
            self._peer.gone() and self._take_last()
        ):
            return self._hold()
        raise LinkTimeout(f"{self._label}: nothing came within {timeout_s:.3g} s, but it is alive")

    def release(self) -> None:
        """See `Receiver.release`."""
        assert self._held, "release without a message"
        self._held = False
        released, self._index = self._index, (self._index + 1) % len(self._slots)
        if not self._closed:
            self._recycle(released)

    def wait(self, timeout_s: float | None) -> bool:
        """See `Receiver.wait`."""
        self._check_open()
        return self._poller.wait(timeout_s)

    def filenos(self) -> tuple[int, ...]:
        """See `Receiver.filenos`."""
        return self.filenos_of(self._ready, self._peer)

    def close(self) -> None:
        """Refuse further use; the slots are not touched."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LinkClosed(f"{self._label}: this end was closed")

    def _take_last(self) -> bool:
        """Take one of the messages that the peer sent before it went."""
        if self._settle is not None:
            self._settle()
        if not self._ready.take():
            raise _gone(self._label, self._peer)
        return True

    def _hold(self) -> memoryview:
        slot = self._slots[self._index]
        (num_bytes,) = _LENGTH.unpack_from(slot)
        if num_bytes > self.max_bytes:
            raise LinkClosed(f"{self._label}: it wrote {num_bytes} bytes into a buffer of {self.max_bytes}")
        self._held = True
        return slot[PREAMBLE_BYTES : PREAMBLE_BYTES + num_bytes]


def _take(semaphore: Semaphore, poller: Poller, peer: Peer, timeout_s: float) -> bool:
    """Take one within `timeout_s`; False on time-out or as soon as the peer is gone.

    `poller` watches the semaphore (0) and the peer (1).
    """
    deadline = time.monotonic() + timeout_s
    while not semaphore.take():
        if not poller.wait(max(0.0, deadline - time.monotonic())):
            return False
        if poller.readable(1) and peer.gone():
            return semaphore.take()
    return True


def _gone(label: str, peer: Peer) -> LinkClosed:
    return LinkClosed(f"{label}: the {peer.name} is gone")

"""A ring of preallocated buffers: the two ends of one direction, for every link that this project brings.

Two counts make it: `released` of buffers that the sender may fill again, `ready` of messages that the
receiver may take. What moves a filled buffer across, and an emptied one back, is the link's own business.

The sender fills the buffer that came back last, which is the most likely to be still in the caches: through
shared memory, 4 MB so take 0.7 of the time that they take when all buffers are filled in turn.

A buffer is a header and room for a payload. In memory that both ends see, and where one message carries both,
they lie side by side: a header is a whole cache line, so that payloads are aligned for vector loads.
"""

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.links.base import A_MESSAGE, LinkMessage
from shared.links.peer import Peer
from shared.links.waiting import EventCounter, EventFd, EventSemaphore, Poller
from shared.slices import HEADER_BYTES, Flags, SliceHeader, describe, pack_header_into, unpack_header


def buffer_bytes(max_bytes: int) -> int:
    """Size of a buffer for payloads of up to `max_bytes`, a multiple of 64."""
    return HEADER_BYTES + -(-max_bytes // 64) * 64


@dataclass(frozen=True, slots=True)
class MessageBuffer:
    """Where one message lies."""

    header: memoryview
    """uint8[64] of host memory."""
    payload: Tensor
    """uint8[max_bytes]."""

    @classmethod
    def over(cls, memory: Tensor, max_bytes: int) -> Self:
        """Both side by side in `memory`, uint8[buffer_bytes(max_bytes)] of the host."""
        payload = memory[HEADER_BYTES : HEADER_BYTES + max_bytes]
        return cls(header=memory[:HEADER_BYTES].numpy().data, payload=payload)


@dataclass(kw_only=True, eq=False)
class RingSender:
    """The writing end; see `shared.links.base.Sender`.

    `released` counts the buffers that may be filled again, in the order in which they were sent. `publish` is
    called with a buffer's index and the bytes of its payload, when its header is written.
    """

    buffers: Sequence[MessageBuffer]
    released: EventCounter
    publish: Callable[[int, int], None]
    peer: Peer

    def __post_init__(self) -> None:
        self.max_bytes = len(self.buffers[0].payload)
        self._label = f"link to the {self.peer.name}"
        self._poller = Poller((self.released.fileno(), self.peer.fileno()))
        self._idle = list(range(len(self.buffers)))
        self._in_flight: deque[int] = deque()
        self._reserved: int | None = None
        self._to_wipe: set[int] = set()
        self._closed = False

    def reserve(self, timeout_s: float, what: str = A_MESSAGE) -> Tensor:
        if self._closed:
            raise LinkClosed(f"{self._label}: this end was closed")
        if self.peer.known_gone:
            raise _gone(self._label, self.peer)
        if self._reserved is None:
            self._reserved = self._take_idle(timeout_s, what)
        return self.buffers[self._reserved].payload

    def send(self, header: SliceHeader) -> None:
        assert self._reserved is not None, "send without reserve"
        num_bytes, buffer = header.payload_bytes, self.buffers[self._reserved]
        assert 0 <= num_bytes <= self.max_bytes, f"{num_bytes} bytes in a buffer of {self.max_bytes}"
        checksum = _checksum(buffer.payload[:num_bytes]) if _is_checked(header) else 0
        sent_at_ns = header.sent_at_ns or time.monotonic_ns()
        pack_header_into(buffer.header, header, sent_at_ns=sent_at_ns, checksum=checksum)
        self.publish(self._reserved, num_bytes)
        self._in_flight.append(self._reserved)
        self._reserved = None
        self.peer.gone()  # for the next `reserve`; asked now, when no message waits for the answer

    def wipe(self) -> None:
        self._to_wipe = set(self._in_flight)
        for index in self._idle:
            self.buffers[index].payload.zero_()

    def wiped(self) -> bool:
        if self._to_wipe:
            self._collect(self.released.take())
        return not self._to_wipe

    def close(self) -> None:
        self._closed = True

    def _take_idle(self, timeout_s: float, what: str) -> int:
        self._collect(self.released.take())
        if not self._idle:
            self._collect(_take(self.released, self._poller, self.peer, timeout_s))
        if self._idle:
            return self._idle.pop()
        if self.peer.gone():
            raise _gone(self._label, self.peer)
        waiting = f"{len(self._in_flight)} messages are in flight"
        raise LinkTimeout(f"{self._label}: it freed no buffer for {what} within {timeout_s:.3g} s, {waiting}")

    def _collect(self, released: int) -> None:
        for _ in range(released):
            index = self._in_flight.popleft()
            if index in self._to_wipe:
                self.buffers[index].payload.zero_()
                self._to_wipe.remove(index)
            self._idle.append(index)


@dataclass(kw_only=True, eq=False)
class RingReceiver:
    """The reading end; see `shared.links.base.Receiver`.

    `ready` counts the messages that may be taken; `recycle` is called with the index of a buffer whose
    message was released. `order` says which buffer each of as many messages lies in, over and over, if not
    one after the other. `drain` is called when the peer is gone, before `ready` is believed, for a link on
    which messages can still be under way then; it must return in bounded time. `wipes`: zero a payload when
    it is released, where the sender doesn't see this memory.
    """

    buffers: Sequence[MessageBuffer]
    ready: EventSemaphore
    recycle: Callable[[int], None]
    peer: Peer
    order: Sequence[int] = ()
    drain: Callable[[], None] = lambda: None
    wipes: bool = False

    def __post_init__(self) -> None:
        self.max_bytes = len(self.buffers[0].payload)
        self.order = self.order or range(len(self.buffers))
        self._label = f"link from the {self.peer.name}"
        self._poller = Poller(self.filenos())
        self._next = 0  # of the order
        self._held: int | None = None
        self._closed = False

    def poll(self) -> LinkMessage | None:
        self._check_free()
        if self.ready.take() or (self.peer.gone() and self._take_last()):
            return self._hold()
        return None

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> LinkMessage:
        self._check_free()
        if _take(self.ready, self._poller, self.peer, timeout_s) or (self.peer.gone() and self._take_last()):
            return self._hold()
        raise LinkTimeout(f"{self._label}: {what} did not come within {timeout_s:.3g} s, but it is alive")

    def release(self) -> None:
        assert self._held is not None, "release without a message"
        released, self._held = self._held, None
        if self.wipes:
            self._payload.zero_()
        if not self._closed:
            self.recycle(released)

    def wait(self, timeout_s: float | None) -> bool:
        self._check_open()
        return self._poller.wait(timeout_s)

    def filenos(self) -> tuple[int, ...]:
        return self.ready.fileno(), self.peer.fileno()

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LinkClosed(f"{self._label}: this end was closed")

    def _check_free(self) -> None:
        self._check_open()
        assert self._held is None, "the last message was not released"

    def _take_last(self) -> bool:
        """Take one of the messages that the peer sent before it went."""
        self.drain()
        if not self.ready.take():
            raise _gone(self._label, self.peer)
        return True

    def _hold(self) -> LinkMessage:
        index = self.order[self._next]
        if index >= len(self.buffers):
            raise SliceError(f"{self._label}: a message in buffer {index} of {len(self.buffers)}")
        self._next = (self._next + 1) % len(self.buffers)
        buffer = self.buffers[index]
        header = unpack_header(buffer.header)
        if header.payload_bytes > self.max_bytes:
            raise SliceError(
                f"{self._about(header)}: {header.payload_bytes} bytes in a buffer of {self.max_bytes}"
            )
        payload = buffer.payload[: header.payload_bytes]
        if _is_checked(header) and (found := _checksum(payload)) != header.checksum:
            raise SliceError(
                f"{self._about(header)}: checksum {found:08x}, header says {header.checksum:08x}"
            )
        self._held, self._payload = index, payload
        return LinkMessage(header, payload)

    def _about(self, header: SliceHeader) -> str:
        return f"{self._label}: {describe(header.kind, header.unit)} of session {header.session}"


def _is_checked(header: SliceHeader) -> bool:
    return bool(header.flags) and Flags.CHECKED in header.flags  # most often there is none, which is quick


def _checksum(payload: Tensor) -> int:
    """CRC-32 of uint8[n]."""
    return zlib.crc32(payload.cpu().numpy().data)


def _take(count: EventFd, poller: Poller, peer: Peer, timeout_s: float) -> int:
    """What there is to take within `timeout_s`; 0 on time-out or as soon as the peer is gone.

    `poller` watches the count and the peer.
    """
    if taken := count.take():
        return taken
    deadline = time.monotonic() + timeout_s
    while poller.wait(max(0.0, deadline - time.monotonic())):
        if taken := count.take():
            return taken
        if peer.gone():
            return count.take()
    return 0


def _gone(label: str, peer: Peer) -> LinkClosed:
    return LinkClosed(f"{label}: the {peer.name} is gone")

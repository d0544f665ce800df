"""The interface between two processes: a link is a pair of one-way channels over preallocated buffers.

A message is a header and a payload, which lies on the link's device. A sender fills the next free buffer in
place and commits it with its header; a receiver reads messages in place, in order, and releases each. On one
host the link copies nothing, and no payload is ever allocated. Each sender and each receiver belongs to one
thread; the two of an end may belong to different threads.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from torch import Tensor

from shared.links.peer import Peer
from shared.slices import SliceHeader

A_MESSAGE = "a message"


class LinkMessage(NamedTuple):
    """What a receiver hands out; the payload is valid until it is released."""

    header: SliceHeader
    payload: Tensor
    """uint8[header.payload_bytes], 64-byte aligned, on the link's device."""


class Sender(Protocol):
    """The writing end of one direction."""

    max_bytes: int
    """Size of every buffer: the largest payload."""

    def reserve(self, timeout_s: float, what: str = A_MESSAGE) -> Tensor:
        """The next free buffer, uint8[max_bytes], 64-byte aligned; the same one until committed.

        Args:
            timeout_s: How long to wait for one.
            what: What it is for, as the error shall call it: "state slice of unit 7".

        Raises:
            LinkTimeout: no buffer became free in time: the peer does not keep up.
            LinkClosed: the peer is gone.
        """

    def send(self, header: SliceHeader) -> None:
        """Send `header` and the first `header.payload_bytes` of the buffer; never waits for the peer.

        `sent_at_ns` is set to this moment if it is 0; the checksum is computed for Flags.CHECKED.

        A peer that is gone by now shows at the next `reserve`.
        """

    def wipe(self) -> None:
        """Zero all payloads that were sent so far: in free buffers now, in the others when they come back."""

    def wiped(self) -> bool:
        """Whether none of those is left; looks for buffers that came back."""

    def close(self) -> None:
        """Refuse further use."""


class Receiver(Protocol):
    """The reading end of one direction."""

    max_bytes: int

    def poll(self) -> LinkMessage | None:
        """The next message if it is here, valid until `release`; None if there is none yet.

        Raises:
            LinkClosed: the peer is gone and everything that it sent has been taken.
            SliceError: what came is not what was sent; the link is of no more use.
        """

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> LinkMessage:
        """The next message, waiting up to `timeout_s` seconds without using the core; valid until `release`.

        Args:
            timeout_s: How long to wait for it.
            what: What is awaited, as the error shall call it: "latents of unit 7".

        Raises:
            LinkTimeout: nothing came; the text names the peer, the direction and `what`.
            LinkClosed, SliceError: as `poll`.
        """

    def release(self) -> None:
        """Give the last message's buffer back to the sender; its payload must not be used any more."""

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for a message or for the peer's end, to 0.1 ms; True when `poll` has something to tell."""

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that are readable when `poll` has something to tell; for waits on several sources."""

    def close(self) -> None:
        """Refuse further use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkShape:
    """Sizes of a link as one side sees them; by default the one that listens. Both must agree."""

    to_peer: int
    """Bytes of the largest payload that this side sends."""
    from_peer: int
    """Bytes of the largest payload that it receives."""
    depth: int = 4
    """Messages in flight in each direction; over a network up to twice as many, half at the receiver."""

    def __post_init__(self) -> None:
        for field, value in (("to_peer", self.to_peer), ("from_peer", self.from_peer), ("depth", self.depth)):
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")

    @property
    def reversed(self) -> "LinkShape":
        """The same link from the other side."""
        return replace(self, to_peer=self.from_peer, from_peer=self.to_peer)


@dataclass(kw_only=True, eq=False)
class LinkEnd(AbstractContextManager["LinkEnd"]):
    """One process's end of a link. A context manager: leaving it closes the end."""

    kind: str
    """What was chosen, for logs and reports: "shm", "gloo", …"""
    sender: Sender
    receiver: Receiver
    peer: Peer
    """The process at the other end; closed last, because the other side takes its end as final."""
    release: Callable[[], None]
    """Closes what the link opened; called once, before the peer is closed."""

    def close(self) -> None:
        """Let what was committed leave, then close; the other end sees LinkClosed after the last message.

        No other thread may be inside the sender or the receiver. Memory that a message lies in stays valid as
        long as someone refers to it. May be called twice.
        """
        self.sender.close()
        self.receiver.close()
        release, self.release = self.release, lambda: None
        release()
        self.peer.close()

    def __exit__(self, *_: object) -> None:
        self.close()

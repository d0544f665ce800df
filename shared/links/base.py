"""The seam between the two processes: a link is a pair of one-way channels over preallocated buffers.

A sender fills the next free buffer in place and commits it; a receiver reads messages in place, in order, and
releases each. On one host the link copies nothing, and nothing is allocated per message. Each sender and each
receiver belongs to one thread; the two of an end may belong to different threads.
"""

from dataclasses import dataclass
from typing import Protocol


class Sender(Protocol):
    """The writing end of one direction."""

    max_bytes: int
    """Size of every buffer: the largest message."""

    def reserve(self, timeout_s: float) -> memoryview:
        """The next free buffer, writable, uint8[max_bytes], 64-byte aligned; the same one until committed.

        Raises:
            LinkTimeout: no buffer became free in `timeout_s` seconds: the peer does not keep up.
            LinkClosed: the peer is gone.
        """
        ...

    def commit(self, num_bytes: int) -> None:
        """Send the first `num_bytes` of the reserved buffer; returns without waiting for the peer.

        Raises:
            LinkClosed: the peer is gone.
        """
        ...


class Receiver(Protocol):
    """The reading end of one direction."""

    max_bytes: int

    def poll(self) -> memoryview | None:
        """The next message if it is here, read-only, valid until `release`; None if there is none yet.

        Raises:
            LinkClosed: the peer is gone and everything that it sent has been taken.
        """
        ...

    def receive(self, timeout_s: float) -> memoryview:
        """The next message, waiting up to `timeout_s` seconds without using the core; valid until `release`.

        Raises:
            LinkTimeout: nothing came; the message names the peer and the direction.
            LinkClosed: the peer is gone and everything that it sent has been taken.
        """
        ...

    def release(self) -> None:
        """Give the last message's buffer back to the sender; its memoryview must not be used any more."""
        ...

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for a message or for the peer's end, to 0.1 ms; True when `poll` has something to tell."""
        ...

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that are readable when `poll` has something to tell; for waits on several sources."""
        ...


class Peer(Protocol):
    """The process at the other end, as its liveness line shows it."""

    name: str
    """"thinker" or "performer"."""

    def gone(self) -> bool:
        """Whether the peer has closed or died. Never blocks."""
        ...

    def fileno(self) -> int:
        """A descriptor that becomes readable when the peer closes or dies."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkShape:
    """Sizes that both ends of a link must agree on."""

    slice_bytes: int
    """Largest message from Thinker to Performer, slice header included."""
    latent_bytes: int
    """Largest message from Performer to Thinker, slice header included."""
    depth: int = 4
    """Messages in flight in each direction."""

    def __post_init__(self) -> None:
        for field in ("slice_bytes", "latent_bytes", "depth"):
            value = getattr(self, field)
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")


class LinkEnd(Protocol):
    """One process's end of a link. A context manager: leaving it closes the end."""

    kind: str
    """"shm", "gloo", …: what was chosen, for logs and reports."""
    sender: Sender
    receiver: Receiver
    peer: Peer

    def close(self) -> None:
        """Let what was committed leave, then close; the other end sees LinkClosed. May be called twice."""
        ...

    def __enter__(self) -> "LinkEnd": ...

    def __exit__(self, *exc_info: object) -> None: ...

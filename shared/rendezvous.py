"""How Thinker and Performer find each other: the Thinker listens, the Performer calls, in any order.

They compare what they were started with, agree on a link, and keep the connection open as the line on which
each sees the other's end.
"""

import threading
from dataclasses import dataclass

from shared.links.base import LinkEnd, LinkShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What both processes must have been started with."""

    digest: str
    """Digest of the model's config and weights."""
    shape: LinkShape
    link: str = "auto"
    """Name of a link; "auto" takes shm on one host, else gloo."""


class Listener:
    """The Thinker's listening socket. Open as long as a Performer may (re)join. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        """Listen on `host:port`; port 0 takes a free one.

        Raises:
            RendezvousError: the address can't be used; the message says why.
        """
        self.host = host
        self.port = port

    def close(self) -> None:
        """Stop listening. May be called twice."""

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def accept_performer(
    listener: Listener, terms: Terms, *, timeout_s: float | None = None, stop: threading.Event | None = None
) -> LinkEnd:
    """Wait for a Performer with the same terms and open the link to it.

    Args:
        listener: Where the Performer calls.
        terms: What this process was started with.
        timeout_s: Give up after so many seconds; None waits until `stop`.
        stop: Set by another thread to give up.

    Raises:
        RendezvousError: nobody came in time, or `stop` was set, or the Performer's terms differ.
        LinkUnavailable: an explicitly chosen link can't be had on one of the two sides.
    """
    raise NotImplementedError


def join_thinker(
    host: str, port: int, terms: Terms, *, timeout_s: float | None = None, stop: threading.Event | None = None
) -> LinkEnd:
    """Call the Thinker at `host:port`, again and again until it is there, and open the link to it.

    Raises:
        RendezvousError: nobody answered in time, or `stop` was set, or the Thinker's terms differ.
        LinkUnavailable: an explicitly chosen link can't be had on one of the two sides.
    """
    raise NotImplementedError

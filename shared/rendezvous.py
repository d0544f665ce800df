"""How Thinker and Performer find each other: the Thinker listens, the Performer calls, in any order.

Performer ── PeerHello (what it was started with) ──► Thinker
          ◄── Accepted (link and where to join it) or Refused (why) ──
then both open the link; the connection stays open, silent, as the line on which each sees the other end.
"""

import logging
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from shared.errors import LinkUnavailable, RendezvousError
from shared.handshake import (
    VERSION,
    Accepted,
    PeerHello,
    Refused,
    check_same_params,
    host_identity,
    receive,
    send,
)
from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import (
    AUTO,
    Capabilities,
    available_links,
    check_link,
    choose_link,
    join_link,
    offer_link,
)
from shared.links.peer import Peer

_log = logging.getLogger(__name__)

_GREETING_S = 1.0  # how long a caller may take to say who it is: a stranger must not hold up the Performer
_OPENING_S = 10.0  # how long both sides may take to open the chosen link
_CALL_S = 2.0  # one attempt to connect
_RETRY_S = 0.1
_SLICE_S = 0.2  # how often a wait looks at its time-out and at `stop`


@dataclass(frozen=True, kw_only=True, slots=True)
class HandshakeParams:
    """What both processes must have been started with."""

    digest: str
    """Digest of the model's config and weights."""
    shape: LinkShape
    link: str = AUTO
    """Name of a link; "auto" takes xccl or nccl between GPUs of one kind, else shm on one host, else gloo."""
    device: str = "cpu"
    """Where this process computes: "cpu", "cuda:0", …; the two may differ."""


class RendezvousListener:
    """The Thinker's listening socket. Open as long as a Performer may (re)join. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        """Listen on `host:port`; port 0 takes a free one, which `self.port` then tells.

        Raises:
            RendezvousError: the address can't be used; the message says why.
        """
        _check_port(port, lowest=0)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            # create_server allows an address whose last user has just ended, but not one in use.
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise RendezvousError(f"rendezvous: can't listen on {host}:{port}: {error}") from None
        self.host = host
        self.port = int(self._socket.getsockname()[1])

    def accept(self, timeout_s: float) -> socket.socket | None:
        """The next caller, or None if there is none within `timeout_s` seconds."""
        self._socket.settimeout(timeout_s)
        try:
            connection, _ = self._socket.accept()
        except (TimeoutError, ConnectionError):  # a caller may be gone before it is taken
            return None
        return connection

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def accept_performer(
    listener: RendezvousListener,
    terms: HandshakeParams,
    *,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> LinkEnd:
    """Wait for a Performer with the same terms and open the link to it. Strangers are hung up on.

    A Performer with other terms is refused, with the same line in its log and in ours, and waited for again:
    whoever started it wrongly starts it once more.

    Args:
        listener: Where the Performer calls.
        terms: What this process was started with.
        timeout_s: Give up after so many seconds; None waits until `stop`.
        stop: Set by another thread to give up.

    Raises:
        RendezvousError: nobody with the same terms came in time, or `stop` was set.
        LinkUnavailable: the explicitly chosen link can't be had here.
        ConfigError: there is no link of that name.
    """
    check_link(terms.link, terms.device)
    patience = _Patience(f"the performer at {listener.host}:{listener.port}", timeout_s, stop)
    while True:
        connection = listener.accept(patience.slice_s())
        if connection is None:
            continue
        try:
            if (hello := _greet(connection)) is not None:
                return _answer(connection, hello, terms)
            connection.close()
        except _LostPeerError as error:
            connection.close()
            _log.warning("rendezvous: the performer went away (%s)", error)
        except (RendezvousError, LinkUnavailable) as error:  # anyone may call: that must not end this process
            connection.close()
            _log.error("%s", error)
        except BaseException:
            connection.close()
            raise


def join_thinker(
    host: str,
    port: int,
    terms: HandshakeParams,
    *,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> LinkEnd:
    """Call the Thinker at `host:port`, again and again until it is there, and open the link to it.

    Raises:
        RendezvousError: nobody answered in time, or `stop` was set, or the Thinker's terms differ, or what
            answers is no Thinker.
        LinkUnavailable: an explicitly chosen link can't be had on one of the two sides.
        ConfigError: there is no link of that name.
    """
    check_link(terms.link, terms.device)
    _check_port(port, lowest=1)
    patience = _Patience(f"the thinker at {host}:{port}", timeout_s, stop)
    while True:
        if (connection := _call(host, port)) is not None:
            try:
                return _introduce(connection, terms, patience)
            except _LostPeerError as error:
                connection.close()
                _log.warning("rendezvous: the thinker went away (%s)", error)
            except BaseException:
                connection.close()
                raise
        patience.pause(_RETRY_S)


class _LostPeerError(Exception):
    """The other side went away in the middle of the rendezvous: there may be another."""


class _Patience:
    """How long to go on, and for what: says so once when it begins, and in the error when it ends."""

    def __init__(self, what: str, timeout_s: float | None, stop: threading.Event | None) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._stop = stop or threading.Event()
        _log.info("waiting for %s", what)

    def slice_s(self) -> float:
        """How long to block until looking here again.

        Raises:
            RendezvousError: the time is over, or someone wants to stop.
        """
        if self._stop.is_set():
            raise RendezvousError(f"rendezvous: stopped while waiting for {self._what}")
        left_s = _SLICE_S if self._deadline is None else self._deadline - time.monotonic()
        if left_s <= 0:
            raise RendezvousError(f"rendezvous: {self._what} was not there within {self._timeout_s:.3g} s")
        return min(_SLICE_S, left_s)

    def pause(self, seconds: float) -> None:
        """Wait, unless it is over."""
        self._stop.wait(min(seconds, self.slice_s()))


def _greet(connection: socket.socket) -> PeerHello | None:
    """What a caller says it is; None for strangers and for those that went away again."""
    decoder = msgspec.json.Decoder(PeerHello)
    try:
        return receive(connection, decoder, _GREETING_S)
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("rendezvous: turned away a caller that is no performer (%.200r)", str(error))
        return None


def _answer(connection: socket.socket, hello: PeerHello, terms: HandshakeParams) -> LinkEnd:
    """Accept a Performer and open the link, or refuse it."""
    own = _hello(terms)
    try:
        check_same_params(own, hello)
        link = choose_link(_wish("thinker", own), _wish("performer", hello))
        own_host = connection.getsockname()[0]
        offer = offer_link(link, terms.shape, own_host=own_host, device=terms.device)
    except (RendezvousError, LinkUnavailable) as error:
        with suppress(OSError):
            send(connection, Refused(reason=str(error), no_link=isinstance(error, LinkUnavailable)))
        raise
    with closing(offer):
        try:
            send(connection, Accepted(link=link, address=offer.address))
            return offer.open(Peer("performer", connection), _OPENING_S)
        except (OSError, RuntimeError) as error:
            raise _LostPeerError(error) from error


def _introduce(connection: socket.socket, terms: HandshakeParams, patience: _Patience) -> LinkEnd:
    """Say who calls, wait for the Thinker's answer, and open the link."""
    decoder: msgspec.json.Decoder[Accepted | Refused] = msgspec.json.Decoder(Accepted | Refused)
    try:
        send(connection, _hello(terms))
        # The Thinker may be busy for as long as it likes: its system takes calls before it does.
        while not _has_answer(connection, patience.slice_s()):
            pass
        answer = receive(connection, decoder, _GREETING_S)
    except OSError as error:
        raise _LostPeerError(error) from error
    except msgspec.DecodeError as error:
        host, port = connection.getpeername()[:2]
        raise RendezvousError(f"rendezvous: what answers at {host}:{port} is no thinker ({error})") from None
    if isinstance(answer, Refused):
        raise (LinkUnavailable if answer.no_link else RendezvousError)(answer.reason)
    _log.info("link %s, chosen by the thinker", answer.link)
    try:
        peer = Peer("thinker", connection)
        return join_link(answer.link, answer.address, terms.shape, peer, _OPENING_S, device=terms.device)
    except (OSError, RuntimeError) as error:
        raise _LostPeerError(error) from error


def _call(host: str, port: int) -> socket.socket | None:
    try:
        connection = socket.create_connection((host, port), _CALL_S)
    except socket.gaierror as error:
        raise RendezvousError(f"rendezvous: there is no host {host!r} ({error.strerror})") from None
    except OSError:
        return None
    # Calling a free port of this host again and again, TCP can end up connected to itself.
    if connection.getsockname() == connection.getpeername():
        connection.close()
        return None
    return connection


def _check_port(port: int, lowest: int) -> None:
    if not lowest <= port <= 65_535:
        raise RendezvousError(f"rendezvous: the port must be {lowest} to 65535, got {port}")


def _hello(terms: HandshakeParams) -> PeerHello:
    return PeerHello(
        version=VERSION,
        digest=terms.digest,
        slice_bytes=terms.shape.slice_bytes,
        latent_bytes=terms.shape.latent_bytes,
        depth=terms.shape.depth,
        link=terms.link,
        device=terms.device,
        available=available_links(terms.device),
        host=host_identity(),
    )


def _wish(process: str, hello: PeerHello) -> Capabilities:
    return Capabilities(
        process=process, link=hello.link, host=hello.host, device=hello.device, available=hello.available
    )


def _has_answer(connection: socket.socket, timeout_s: float) -> bool:
    """Whether there is something to receive, an end of the connection included, within `timeout_s`."""
    connection.settimeout(timeout_s)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    return True

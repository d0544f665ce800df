"""How the processes of a deployment find each other: one listens, the others call it, in any order.

Each caller says its role and proves that it knows the secret (`handshake`), then both compare what they
were started with and open a link. The connection stays open, silent, as the line on which each sees the
other's end.
"""

import errno
import logging
import math
import queue
import socket
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass

from shared.errors import LinkUnavailable, RendezvousError
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
from shared.links.peer import Peer, host_identity
from shared.processes.handshake import (
    Accepted,
    HandshakeConnection,
    HandshakeError,
    LinkParams,
    Refused,
    check_same_params,
)
from shared.processes.roles import ProcessRole

_log = logging.getLogger(__name__)

_MESSAGE_S = 5.0  # how long a caller may take for each message
_OPENING_S = 10.0  # how long both sides may take to open the chosen link
_CALL_S = 2.0  # one attempt to connect
_RETRY_S = 0.1
_SLICE_S = 0.2  # how often a wait looks at its time-out and at `stop`
_MAX_CALLERS = 32  # that are listened to at a time: beyond, the one that has taken longest is hung up on
_CROWDED_S = 0.005  # between callers then: who proves itself needs a few milliseconds
_WARN_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HandshakeParams:
    """What two processes must have been started with."""

    secret: str
    """That the processes of this deployment share."""
    digest: str
    """Digest of the model's config and weights."""
    shape: LinkShape
    link: str = AUTO
    """Name of a link; "auto" takes xccl or nccl between GPUs of one kind, else shm on one host, else gloo."""
    device: str = "cpu"
    """Where this process computes: "cpu", "cuda:0", …; the two may differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Caller:
    role: str
    connection: HandshakeConnection


class RendezvousListener(AbstractContextManager["RendezvousListener"]):
    """A process's listening socket, open as long as it lives. A context manager.

    Callers are served side by side on threads of their own until they have proven themselves, so that who is
    silent holds up nobody.
    """

    def __init__(self, host: str, port: int, *, secret: str, role: ProcessRole) -> None:
        """Listen on `host:port`; port 0 takes a free one, which `self.port` then tells.

        Callers must know `secret`, and be of a role among the peers of `role`, which is this process's.

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
        self.role = role
        self._secret = secret
        self._callers: queue.Queue[_Caller] = queue.Queue()
        self._unproven: deque[socket.socket] = deque()
        self._warned_at = -math.inf
        self._linked: set[str] = set()
        self._lock = threading.Lock()  # between who is linked and who is handed on
        threading.Thread(target=self._serve, name="rendezvous", daemon=True).start()

    def next_caller(self, timeout_s: float) -> _Caller | None:
        """The next caller that has proven itself, or None if there is none within `timeout_s` seconds."""
        with suppress(queue.Empty):
            return self._callers.get(block=timeout_s > 0, timeout=timeout_s)
        return None

    def linked(self, role: str) -> None:
        """There is a link to a process of this role: others are told that its place is taken."""
        with self._lock:
            self._linked.add(role)
            others = list(iter(lambda: self.next_caller(0), None))
            for caller in others:
                if caller.role == role:
                    _refuse(caller.connection, f"another {role} has that place already")
                else:
                    self._callers.put(caller)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        while (caller := self.next_caller(0)) is not None:
            caller.connection.line.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except ConnectionError:  # a caller may be gone before it is taken
                continue
            except OSError as error:
                if error.errno not in {errno.EMFILE, errno.ENFILE}:
                    return
                time.sleep(_RETRY_S)  # other callers' sockets are closed meanwhile
                continue
            with self._lock:
                self._unproven.append(line)
                crowded = len(self._unproven) > _MAX_CALLERS
                if crowded:
                    _hang_up(self._unproven.popleft())
            threading.Thread(target=self._hear, args=(line,), name="caller", daemon=True).start()
            if crowded:
                time.sleep(_CROWDED_S)

    def _hear(self, line: socket.socket) -> None:
        """Let one caller prove itself; who does is handed on, unless its place is taken."""
        connection = HandshakeConnection(line)
        try:
            try:
                role = connection.admit(self._secret, _MESSAGE_S)
            finally:
                with self._lock, suppress(ValueError):  # it was hung up on
                    self._unproven.remove(line)
            with self._lock:
                if role not in self.role.peers:
                    _refuse(connection, f"no {role} is expected here")
                elif role in self._linked:
                    _refuse(connection, f"another {role} has that place already")
                else:
                    self._callers.put(_Caller(role=role, connection=connection))
        except (OSError, HandshakeError) as error:
            peers, now = " or ".join(self.role.peers), time.monotonic()
            level = logging.WARNING if now - self._warned_at >= _WARN_EVERY_S else logging.DEBUG
            if level == logging.WARNING:
                self._warned_at = now
            _log.log(level, "rendezvous: turned away a caller that is no %s (%.200r)", peers, str(error))
            line.close()


class _LostPeerError(Exception):
    """The other side went away in the middle of the rendezvous: there may be another."""


class _Wait:
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
        self._stop.wait(min(seconds, self.slice_s()))


def accept_peers(
    listener: RendezvousListener,
    params: HandshakeParams,
    *,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> dict[str, LinkEnd]:
    """Wait for one process of every role that this one is linked to; the links to them by role.

    A caller with other parameters is refused, with the same line in its log and in ours, and waited for
    again: whoever started it wrongly starts it once more. The wait ends after `timeout_s` seconds, if given,
    or when another thread sets `stop`.

    Raises:
        RendezvousError: not all came in time, or `stop` was set.
        LinkUnavailable: the explicitly chosen link can't be had here.
        ConfigError: there is no link of that name.
    """
    check_link(params.link, params.device)
    links: dict[str, LinkEnd] = {}
    try:
        while missing := [role for role in listener.role.peers if role not in links]:
            wait = _Wait(
                f"the {' and the '.join(missing)} at {listener.host}:{listener.port}", timeout_s, stop
            )
            role, links[role] = _next_link(listener, params, wait)
            listener.linked(role)
    except BaseException:
        for link in links.values():
            link.close()
        raise
    return links


def _next_link(listener: RendezvousListener, params: HandshakeParams, wait: _Wait) -> tuple[str, LinkEnd]:
    while True:
        caller = listener.next_caller(wait.slice_s())
        if caller is None:
            continue
        try:
            return caller.role, _answer(caller, params, listener.role.name)
        except _LostPeerError as error:
            _log.warning("rendezvous: the %s went away (%s)", caller.role, error)
        except (RendezvousError, LinkUnavailable) as error:  # that must not end this process
            _log.error("%s", error)
        caller.connection.line.close()


def join_peer(
    host: str,
    port: int,
    params: HandshakeParams,
    *,
    role: ProcessRole,
    at: ProcessRole,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> LinkEnd:
    """Call the process at `host:port`, again and again until it is there, and open the link to it.

    This process is of `role`, the one that listens of the role `at`; `timeout_s` and `stop` as above.

    Raises:
        RendezvousError: nobody answered in time, or `stop` was set, or the other was started with something
            else, has a process of this role already, or doesn't know the secret.
        LinkUnavailable: an explicitly chosen link can't be had on one of the two sides.
        ConfigError: there is no link of that name.
    """
    check_link(params.link, params.device)
    _check_port(port, lowest=1)
    wait = _Wait(f"the {at.name} at {host}:{port}", timeout_s, stop)
    while True:
        if (line := _call(host, port)) is not None:
            try:
                return _introduce(HandshakeConnection(line), params, wait, role, at)
            except _LostPeerError as error:
                line.close()
                _log.warning("rendezvous: the %s went away (%s)", at.name, error)
            except HandshakeError as error:
                line.close()
                raise RendezvousError(
                    f"rendezvous: what answers at {host}:{port} is no {at.name} ({error})"
                ) from None
            except BaseException:
                line.close()
                raise
        wait.pause(_RETRY_S)


def _answer(caller: _Caller, params: HandshakeParams, here: str) -> LinkEnd:
    """Accept a caller that fits and open the link, or refuse it."""
    connection, own = caller.connection, _link_params(params, here)
    try:
        theirs: LinkParams = connection.receive(LinkParams, _MESSAGE_S)
    except (OSError, HandshakeError) as error:
        raise _LostPeerError(error) from error
    try:
        check_same_params(own, theirs, here, caller.role)
        link = choose_link(own.capabilities, theirs.capabilities)
        own_host = connection.line.getsockname()[0]
        offer = offer_link(link, params.shape, own_host=own_host, device=params.device)
    except (RendezvousError, LinkUnavailable) as error:
        with suppress(OSError):
            connection.send(Refused(reason=str(error), no_link=isinstance(error, LinkUnavailable)))
        raise
    with closing(offer):
        try:
            connection.send(Accepted(link=link, address=offer.address))
            return offer.open(Peer(caller.role, connection.line), _OPENING_S)
        except (OSError, RuntimeError) as error:
            raise _LostPeerError(error) from error


def _introduce(
    connection: HandshakeConnection, params: HandshakeParams, wait: _Wait, role: ProcessRole, at: ProcessRole
) -> LinkEnd:
    """Say who calls, wait for the answer, and open the link."""
    try:
        _await_message(connection, wait)
        connection.introduce(params.secret, role.name, _MESSAGE_S)
        connection.send(_link_params(params, role.name))
        _await_message(connection, wait)  # a link may have to be built
        answer: Accepted | Refused = connection.receive(Accepted | Refused, _MESSAGE_S)
    except OSError as error:
        raise _LostPeerError(error) from error
    if isinstance(answer, Refused):
        raise (LinkUnavailable if answer.no_link else RendezvousError)(answer.reason)
    _log.info("link %s, chosen by the %s", answer.link, at.name)
    try:
        peer = Peer(at.name, connection.line)
        return join_link(answer.link, answer.address, params.shape, peer, _OPENING_S, device=params.device)
    except (OSError, RuntimeError) as error:
        raise _LostPeerError(error) from error


def _hang_up(line: socket.socket) -> None:
    """End a connection that another thread reads from, which closes it."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _refuse(connection: HandshakeConnection, why: str) -> None:
    with suppress(OSError):
        connection.send(Refused(reason=f"rendezvous: {why}"))
    connection.line.close()


def _call(host: str, port: int) -> socket.socket | None:
    try:
        line = socket.create_connection((host, port), _CALL_S)
    except socket.gaierror as error:
        raise RendezvousError(f"rendezvous: there is no host {host!r} ({error.strerror})") from None
    except OSError:
        return None
    # Calling a free port of this host again and again, TCP can end up connected to itself.
    if line.getsockname() == line.getpeername():
        line.close()
        return None
    return line


def _check_port(port: int, lowest: int) -> None:
    if not lowest <= port <= 65_535:
        raise RendezvousError(f"rendezvous: the port must be {lowest} to 65535, got {port}")


def _link_params(params: HandshakeParams, role: str) -> LinkParams:
    capabilities = Capabilities(
        process=role, link=params.link, host=host_identity(), device=params.device,
        available=available_links(params.device),
    )  # fmt: skip
    return LinkParams(digest=params.digest, shape=params.shape, capabilities=capabilities)


def _await_message(connection: HandshakeConnection, wait: _Wait) -> None:
    """Until there is something to receive, an end of the connection included."""
    while True:
        connection.line.settimeout(wait.slice_s())
        with suppress(TimeoutError):
            connection.line.recv(1, socket.MSG_PEEK)
            return

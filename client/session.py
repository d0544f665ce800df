"""One WebSocket connection to a Thinker: the state machine of `protocol.session` with a socket under it.

Every way in which the server, the network or the other end's version can fail comes out as one
`ConnectionFailed` (or `Unauthorised`) with a line that says what to do.
"""

import contextlib
import ipaddress
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
    NegotiationError,
)
from websockets.http11 import Response

from client.errors import ConnectionFailed, Unauthorised, UsageError
from protocol import messages as m
from protocol.errors import Close, CloseCode
from protocol.media import MAX_MEDIA_BYTES, MediaUnit, decode_media
from protocol.session import ClientProtocol, Send, State

log = logging.getLogger(__name__)

PATH = "/v1/session"
OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
PING_INTERVAL_S = 10.0  # a dead line is noticed after this and the next
PING_TIMEOUT_S = 20.0
MAX_WORDS = 200

Incoming = m.ServerMessage | MediaUnit


def session_url(address: str) -> str:
    """The WebSocket address of what a person types: `host:port`, `http://…`, `ws://…`, with or without path.

    Raises:
        UsageError: when it is none of these.
    """
    text = address if "://" in address else f"ws://{address}"
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        raise UsageError(f"--url {address}: {error}") from error
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in {"ws", "wss"} or not parts.hostname:
        raise UsageError(f"--url {address}: want HOST:PORT, http://HOST:PORT or ws://HOST:PORT{PATH}")
    path = parts.path if parts.path.strip("/") else PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


class ClientSession:
    """A connection on which `hello` has been sent. Made by `open_session`."""

    def __init__(self, socket: ClientConnection, protocol: ClientProtocol, url: str) -> None:
        self._socket = socket
        self._protocol = protocol
        self._url = url
        self._last_error: str | None = None

    @property
    def stale_units(self) -> int:
        """Units of the agent that an interruption had made void."""
        return self._protocol.stale_units

    async def wait_ready(self, on_queued: Callable[[m.Queued], None]) -> m.Ready:
        """Wait for a free slot; `on_queued` is called whenever the place in the queue changes.

        Raises:
            ConnectionFailed: when the server refuses or goes away.
        """
        async with contextlib.aclosing(self.incoming()) as incoming:
            async for message in incoming:
                match message:
                    case m.Ready():
                        return message
                    case m.Queued():
                        on_queued(message)
        raise ConnectionFailed(self._last_error or f"{self._url}: the server ended before the session began")

    async def incoming(self) -> AsyncGenerator[Incoming, None]:
        """What the server sends, in order, until either side ends the session in order.

        Raises:
            ConnectionFailed: when it ends in any other way.
        """
        while True:
            try:
                data = await self._socket.recv()
            except ConnectionClosed as error:
                if self._protocol.state is not State.CLOSED:
                    self._explain(error)
                return
            stale = self._protocol.stale_units
            for event in self._protocol.receive(data):
                match event:
                    case Send(data=text):
                        await self._send(text)
                    case Close(code=code, reason=reason):
                        await self._socket.close(code, reason)
                        if code is not CloseCode.NORMAL:
                            raise ConnectionFailed(f"{self._url}: the server broke the protocol: {reason}")
                    case _:
                        self._note(event)
                        yield event  # type: ignore[misc]  # the protocol refuses what only clients send
            if self._protocol.stale_units > stale and isinstance(data, bytes):
                await self._ack_stale(data)

    async def send(self, message: m.ClientMessage) -> None:
        """Send a control message; nothing happens when the session is over."""
        if self._protocol.state is State.READY:
            await self._send(self._protocol.send(message))

    async def send_unit(self, pcm: bytes, frames: tuple[bytes, ...]) -> None:
        """Send the user's next unit, PCM16 at 16 kHz and JPEG frames; nothing when the session is over."""
        if self._protocol.state is State.READY:
            await self._send(self._protocol.send_unit(pcm, frames))

    def skip_units(self, count: int) -> None:
        """The user's time went on by `count` units that will never be sent."""
        self._protocol.skip_units(count)

    async def close(self, reason: str) -> None:
        """Send bye and close; harmless when the session is over."""
        if self._protocol.state in {State.QUEUED, State.READY}:
            await self._send(self._protocol.send(m.Bye(reason=reason)))
        await self._socket.close()

    async def _send(self, data: str | bytes) -> None:
        with contextlib.suppress(ConnectionClosed):  # the receiving side tells why, once
            await self._socket.send(data)

    async def _ack_stale(self, data: bytes) -> None:
        # The protocol hides units of an older epoch; for the server they are under way until they are acked.
        unit = decode_media(data)
        if isinstance(unit, MediaUnit):
            await self.send(m.Ack(unit=unit.unit))

    def _note(self, message: object) -> None:
        match message:
            case m.Error(code=code, message=text, fatal=fatal):
                log.error("server: %s (%s)", text, code)
                self._last_error = text if fatal else self._last_error
            case m.Warning(code=code, message=text):
                log.warning("server: %s (%s)", text, code)

    def _explain(self, closed: ConnectionClosed) -> None:
        """Raise what the close frame means, or return when it was an end in order."""
        if closed.rcvd is None:
            raise ConnectionFailed(f"{self._url}: the connection was lost")
        why = self._last_error or closed.rcvd.reason or f"code {closed.rcvd.code}"
        match closed.rcvd.code:
            case CloseCode.NORMAL:
                return
            case CloseCode.UNAUTHORISED:
                raise Unauthorised(f"{self._url}: {why}: give the server's token with --token")
            case CloseCode.VERSION_MISMATCH:
                raise ConnectionFailed(f"{self._url}: client and server don't fit together: {why}")
            case CloseCode.TRY_AGAIN_LATER:
                raise ConnectionFailed(f"{self._url}: the server is busy: {why}")
            case CloseCode.GOING_AWAY:
                raise ConnectionFailed(f"{self._url}: the server is shutting down")
        raise ConnectionFailed(f"{self._url}: the server ended the session: {why}")


@contextlib.asynccontextmanager
async def open_session(url: str, hello: m.Hello) -> AsyncIterator[ClientSession]:
    """Connect, say hello, and close at the end whatever happens.

    Args:
        url: as `session_url` gives it.
        hello: what this client can and brings.

    Raises:
        ConnectionFailed: when there is no Thinker at `url`.
        UsageError: when `url` is none.
    """
    socket = await _connect(url)
    protocol = ClientProtocol(hello)
    session = ClientSession(socket, protocol, url)
    try:
        with contextlib.suppress(ConnectionClosed):
            await socket.send(protocol.hello())
        yield session
    finally:
        await session.close("client ends")


async def _connect(url: str) -> ClientConnection:
    try:
        socket = await connect(
            url,
            subprotocols=[m.SUBPROTOCOL],  # type: ignore[list-item]  # a NewType over str
            compression=None,  # JPEG and noise don't shrink
            max_size=MAX_MEDIA_BYTES,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            proxy=None if _is_local(url) else True,
        )
    except InvalidURI as error:
        raise UsageError(f"--url {url}: not a WebSocket address") from error
    except InvalidStatus as error:
        raise ConnectionFailed(f"{url}: refused with {_words(error.response)}") from error
    except (NegotiationError, InvalidMessage) as error:
        raise ConnectionFailed(f"{url}: something answers there, but no Thinker") from error
    except InvalidHandshake as error:
        raise ConnectionFailed(f"{url}: the handshake failed: {error}") from error
    except TimeoutError as error:
        raise ConnectionFailed(f"{url}: no answer within {OPEN_TIMEOUT_S:.0f} s") from error
    except OSError as error:
        # asyncio puts "Connect call failed" and raw addresses where the reason should be
        refused = "Connect call failed" in str(error)
        reason = "connection refused" if refused else (error.strerror or str(error)).lower()
        raise ConnectionFailed(f"{url}: no server there: {reason}") from error
    if socket.subprotocol != m.SUBPROTOCOL:
        await socket.close()
        raise ConnectionFailed(f"{url}: something answers there, but no Thinker")
    return socket


def _words(response: Response) -> str:
    """The status of a refusal, and why where that is one short line, as the Thinker's are."""
    status, why = f"HTTP {response.status_code}", (response.body or b"").decode(errors="replace")
    return f"{status}: {why}" if why.isprintable() and 0 < len(why) <= MAX_WORDS else status


def _is_local(url: str) -> bool:
    """A proxy from the environment is for the world outside, not for this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""One WebSocket connection below the messages: frames, what is still unsent, and the end of the socket.

`LimitChecker` counts messages. A client can keep a server busy without any: with pings, pongs, or the empty
pieces of a message that never ends. And one that reads nothing keeps the socket for ever, since a transport
that is closed waits until everything is sent. uvicorn bounds none of this, so its connection is extended.

What is extended is not public, so pyproject.toml pins uvicorn to one minor version. Public interfaces don't
reach: uvicorn has settings for the size of a message and for its own pings only, and what it asks of another
class as `ws` (constructor, `server_state`, `shutdown`) is as little documented. `websockets.serve` answers
pings whether or not the client reads, counts no frames, and serves no HTTP beside sessions on the one port. A
class on `websockets.server.ServerProtocol`, which is public, would do, but has to bring what is inherited
here: the handshake as ASGI, denials, flow control both ways, keepalive, the close. That is twice this code.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from protocol.errors import CloseCode
from thinker.server.limits import TokenBucket

FRAMES_BURST = 500  # over the token bucket of messages, so that an excess of those has its own answer
FRAMES_PER_S = 250
PIECE_BYTES = 4096  # holds 682 frames at most: so many are parsed before they are counted
UNSENT_S = 5.0  # how long a client may take to read the rest, once the session is over
MAX_SOCKETS = 256  # of all kinds
REQUEST_S = 5.0  # that a request's head may take to come


class HttpConnection(H11Protocol):
    """What uvicorn is given as `http`: its own connection, so many at a time, each with a request soon."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_SOCKETS:
            transport.abort()
        self.loop.call_later(REQUEST_S, self._abort_if_idle)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.loop.call_later(REQUEST_S, self._abort_if_idle)

    def _abort_if_idle(self) -> None:
        """Hang up on who has not asked for anything yet; a WebSocket is another protocol by now."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.transport.get_protocol() is self:
            self.transport.abort()


class Connection(WebSocketsSansIOProtocol):
    """What uvicorn is given as `ws`: its own connection, within bounds."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._frames = TokenBucket(burst=FRAMES_BURST, per_s=FRAMES_PER_S, now=self.loop.time())
        self._owed_pongs = b""
        self._abort_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Parse piece by piece: one read may hold 40,000 frames."""
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + PIECE_BYTES])

    def handle_events(self) -> None:
        """Take the frames of one piece, or hang up if they are too many."""
        if self._frames.spend(len(self.conn.events), self.loop.time()):
            super().handle_events()
        elif self.conn.state is State.OPEN:
            self._fail(CloseCode.POLICY, "more frames than a session needs")
        else:
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        """Hand over a message. Text that is none ends the connection, which is no fault worth a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_DATA, "a text message is not UTF-8")
                return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer pings. A client that doesn't read gets the last answers only, when it reads again."""
        pongs = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pongs)
        else:
            self._owed_pongs = pongs or self._owed_pongs

    def resume_writing(self) -> None:
        super().resume_writing()
        pongs, self._owed_pongs = self._owed_pongs, b""
        self.transport.write(pongs)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:  # a denial is a complete handshake too, or uvicorn logs an error for each
            self.handshake_complete = True

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The app is done with this connection: the client has a little time to read what is left."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._abort_timer = self.loop.call_later(UNSENT_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._abort_timer is not None:
            self._abort_timer.cancel()

    def _fail(self, code: int, reason: str) -> None:
        """Close at once, and take nothing more."""
        self.conn.fail(code, reason)
        self.handle_parser_exception()

"""What waits to be sent to one client, and sending it in order.

Control messages go before media, so that `interrupted` and a unit's words are never behind the unit.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from starlette.websockets import WebSocket, WebSocketDisconnect

from protocol.errors import Close
from thinker.server.metrics import ServerMetrics

# What a send raises once the connection has ended under it: starlette's own, and uvicorn's RuntimeError.
_ENDED = (WebSocketDisconnect, RuntimeError)


@dataclass(kw_only=True, eq=False)
class Outbox:
    """Writes to one accepted WebSocket; nobody but `write` ever waits for the client."""

    socket: WebSocket
    next_media: Callable[[], bytes | None]
    """The next binary message that the client may get."""
    metrics: ServerMetrics
    max_messages: int
    """Control messages that may wait."""

    def __post_init__(self) -> None:
        self._messages: deque[str] = deque()
        self._wake = asyncio.Event()

    def put(self, message: str) -> bool:
        """Queue a control message; false when so many wait that the client can't be reading."""
        if len(self._messages) >= self.max_messages:
            return False
        self._messages.append(message)
        self._wake.set()
        return True

    def wake(self) -> None:
        """There may be media to send."""
        self._wake.set()

    async def write(self) -> None:
        """Send what there is to send; returns when the client is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (data := self._next()) is not None:
                try:
                    await self._send(data)
                except _ENDED:
                    return

    async def close(self, close: Close, *, within_s: float) -> None:
        """Send the control messages that still wait, and the close; who reads nothing is left alone."""
        with contextlib.suppress(TimeoutError, *_ENDED):
            async with asyncio.timeout(within_s):
                while self._messages:
                    await self._send(self._messages.popleft())
                await self.socket.close(close.code, close.reason)

    def _next(self) -> str | bytes | None:
        return self._messages.popleft() if self._messages else self.next_media()

    async def _send(self, data: str | bytes) -> None:
        if isinstance(data, str):
            await self.socket.send_text(data)
        else:
            await self.socket.send_bytes(data)
            self.metrics.sent_units.inc()
        self.metrics.sent_bytes.inc(len(data))

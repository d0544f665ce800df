"""What a client may do below the messages: frames by the thousand, answers left unread, sockets kept."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from protocol import messages as m
from protocol.media import MAX_MEDIA_BYTES, MediaUnit
from thinker.server import connection
from thinker.server.limits import ClientLimits

PATIENCE_S = 20.0
CONT, TEXT, PING, PONG = 0, 1, 9, 10
EMPTY = {"pieces": (CONT, 0), "pings": (PING, 1), "pongs": (PONG, 1)}
HIGH_WATER = 64 * 1024  # of asyncio: with more than this unsent, writing is paused


def frame(opcode: int, data: bytes = b"", final: int = 1) -> bytes:
    """One masked frame of less than 126 bytes; the mask of zeros leaves the data as it is."""
    return bytes([final << 7 | opcode, 0x80 | len(data), 0, 0, 0, 0]) + data


class Raw:
    """A connection after its handshake, on which a test writes bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def rest(self) -> bytes:
        """All that still comes until the server hangs up."""
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while part := await self.reader.read(65_536):
                    received += part
        return bytes(received)


@pytest.fixture
async def open_raw() -> AsyncIterator[Callable[..., Awaitable[Raw]]]:
    """`raw = await open_raw(server)`: open a session's WebSocket and write frames by hand."""
    writers = []

    async def open_raw(server: Any, receive_buffer: int | None = None) -> Raw:
        plain = socket.socket()
        plain.setblocking(False)
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", server.port))
        reader, writer = await asyncio.open_connection(sock=plain, limit=2048)
        writers.append(writer)
        writer.write(
            b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: " + m.SUBPROTOCOL.encode() + b"\r\n\r\n"
        )
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return Raw(reader, writer)

    yield open_raw
    for writer in writers:
        writer.transport.abort()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[connection.Connection]:
    """The server's ends, in the order in which they were opened."""
    made: list[connection.Connection] = []
    known = connection.Connection.connection_made

    def connection_made(self: connection.Connection, transport: asyncio.BaseTransport) -> None:
        made.append(self)
        known(self, transport)

    monkeypatch.setattr(connection.Connection, "connection_made", connection_made)
    return made


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's sockets hold little: what a client leaves unread is soon the server's to keep."""

    def listen(host: str, port: int) -> socket.socket:
        listener = socket.create_server((host, port))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted ones inherit it
        return listener

    monkeypatch.setattr("thinker.server.app._listen", listen)


@pytest.fixture
def no_frame_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FRAMES_BURST", 10**9)


@pytest.mark.parametrize("kind", EMPTY)
async def test_a_flood_of_empty_frames_ends_the_connection(server: Any, open_raw: Any, kind: str) -> None:
    opcode, final = EMPTY[kind]
    raw = await open_raw(server)
    async with await server.connect() as good:
        await good.start()
        raw.writer.write(frame(TEXT, b"x", final=0) + frame(opcode, b"", final) * 42_000)
        answers = await raw.rest()
        most = connection.FRAMES_BURST + connection.PIECE_BYTES // 6
        assert answers.count(b"\x8a\x00") <= most, "it hangs up long before all are parsed"
        await server.engine.tick()
        assert (await good.next(MediaUnit)).unit == 0


@pytest.mark.parametrize("kind", EMPTY)
async def test_who_sends_too_many_frames_is_told_so(server: Any, open_raw: Any, kind: str) -> None:
    opcode, final = EMPTY[kind]
    raw = await open_raw(server)
    raw.writer.write(frame(TEXT, b"x", final=0) + frame(opcode, b"", final) * 600)
    assert struct.pack(">H", 1008) + b"more frames than a session needs" in await raw.rest()


async def test_answers_to_pings_that_nobody_reads_are_not_kept(
    narrow: None, no_frame_budget: None, run_server: Any, open_raw: Any, connections: Any
) -> None:
    async with run_server() as server:
        raw = await open_raw(server, receive_buffer=2048)
        for number in range(20_000):
            raw.writer.write(frame(PING, struct.pack(">I", number) * 30))
            await raw.writer.drain()
        raw.writer.write(frame(TEXT, b'{"type":"hello"}'))
        await server.until(lambda: server.engine.open)  # so all the pings have been parsed
        unsent = connections[0].transport.get_write_buffer_size()
        assert not connections[0].writable.is_set(), "the test has filled what lies between"
        assert unsent < HIGH_WATER + 2 * connection.PIECE_BYTES
        raw.writer.write(frame(TEXT, b'{"type":"bye"}'))
        last = struct.pack(">I", 19_999) * 30
        assert bytes([0x8A, 120]) + last in await raw.rest(), (
            "who reads again has the answer to the last ping"
        )


async def test_who_reads_nothing_can_not_keep_the_socket(
    monkeypatch: pytest.MonkeyPatch,
    narrow: None,
    no_frame_budget: None,
    run_server: Any,
    open_raw: Any,
    connections: Any,
) -> None:
    monkeypatch.setattr(connection, "UNSENT_S", 0.1)
    async with run_server(limits=ClientLimits(close_s=0.05)) as server:
        stalled = [await open_raw(server, receive_buffer=2048) for _ in range(5)]
        for raw in stalled:
            raw.writer.write(frame(PING, b"p" * 120) * 2_000 + frame(TEXT, b"no message"))
        sockets = [connection.transport.get_extra_info("socket") for connection in connections]
        await server.until(lambda: all(end.fileno() == -1 for end in sockets))


async def test_the_largest_unit_passes_whole_and_in_pieces(server: Any, value: Any) -> None:
    sound = np.zeros((MAX_MEDIA_BYTES - 100) // 2, np.int16).tobytes()
    async with await server.connect() as client:
        await client.start()
        unit = client.session.send_unit(sound, ())
        await client.socket.send(unit)
        await server.until(lambda: value(server.app.state.manager.metrics.dropped_samples) > 1_000_000)
        unit = client.session.send_unit(sound, ())
        await client.socket.send([unit[start : start + 65_536] for start in range(0, len(unit), 65_536)])
        await server.until(lambda: value(server.app.state.manager.metrics.dropped_samples) > 3_000_000)
        await server.engine.tick()
        assert (await client.next(MediaUnit)).unit == 0


async def test_honest_pings_are_answered(server: Any) -> None:
    async with await server.connect() as client, asyncio.timeout(PATIENCE_S):
        await client.start()
        reading = asyncio.create_task(client.next(m.Queued))  # never comes
        for _ in range(100):
            await (await client.socket.ping())
        reading.cancel()


async def test_refused_handshakes_leave_no_errors_in_the_log(
    server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({"origin": "http://evil.example"}, {"subprotocols": [Subprotocol("other")]}):
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(**options)
        assert refused.value.response.status_code in (400, 403)
        assert refused.value.response.body
    async with await server.connect() as client:  # by now the refused ones are over
        await client.start()
    assert loud(caplog) == []


async def test_text_that_is_none_leaves_no_traceback_in_the_log(
    server: Any, open_raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw = await open_raw(server)
    raw.writer.write(frame(TEXT, b"\xff\xfe") * 20)
    assert struct.pack(">H", 1007) + b"a text message is not UTF-8" in await raw.rest()
    assert loud(caplog) == []


def loud(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_request_that_never_comes_is_hung_up_on(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.2)
    for head in (
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head)
        received = await Raw(reader, writer).rest()
        assert received.endswith(b"ok") or not received
        writer.close()


async def test_sockets_have_a_bound(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_SOCKETS", 3)
    async with await server.connect() as client:
        await client.start()
        open_ones = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        lost = [reader for reader, _ in open_ones[2:]]
        assert [await Raw(reader, open_ones[0][1]).rest() for reader in lost] == 3 * [b""]
        assert not open_ones[0][0].at_eof()
        for _, writer in open_ones:
            writer.close()

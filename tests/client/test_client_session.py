"""Addresses, and every way in which a server can fail: one clear line each, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Response

from client.errors import ConnectionFailed, Unauthorised, UsageError
from client.session import open_session, session_url
from protocol import messages as m
from protocol.errors import CloseCode
from protocol.media import MediaKind, MediaUnit, encode_media

Handler = Callable[[ServerConnection], Awaitable[None]]

READY = m.Ready(
    session_id="s",
    resume_token="r",
    unit_ms=160,
    fps=25,
    frames_per_unit=4,
    sample_rate=16_000,
    width=64,
    height=64,
    input_width=32,
    input_height=32,
    input_rate=16_000,
    audio_codec="pcm16",
    video_codec="jpeg",
    model="test",
)


@contextlib.asynccontextmanager
async def server(
    handler: Handler, subprotocol: str | None = m.SUBPROTOCOL, **options: Any
) -> AsyncIterator[str]:
    subprotocols = [subprotocol] if subprotocol else None
    async with serve(handler, "127.0.0.1", 0, subprotocols=subprotocols, **options) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/session"


async def hold_session(url: str) -> list[object]:
    """Connect, wait for ready, read everything until the end."""
    async with open_session(url, m.Hello()) as session:
        await session.wait_ready(lambda _queued: None)
        return [message async for message in session.incoming()]


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("localhost:8000", "ws://localhost:8000/v1/session"),
        ("http://host:1/", "ws://host:1/v1/session"),
        ("https://host", "wss://host/v1/session"),
        ("ws://[::1]:80/other?x=1", "ws://[::1]:80/other?x=1"),
    ],
)
def test_addresses_as_people_type_them(typed: str, url: str) -> None:
    assert session_url(typed) == url


@pytest.mark.parametrize("typed", ["", "ftp://host", "ws://", "host:port", "http://[::1", "host:99999"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="--url"):
        session_url(typed)


async def test_a_session_in_order() -> None:
    heard: list[object] = []

    async def handler(connection: ServerConnection) -> None:
        hello = m.decode_control(str(await connection.recv()))
        assert isinstance(hello, m.Hello)
        await connection.send(m.encode_control(m.Queued(position=2, eta_s=3.0)))
        await connection.send(m.encode_control(READY))
        await connection.send(m.encode_control(m.Ping(sent_us=7)))
        await connection.send(encode_media(MediaUnit(kind=MediaKind.AGENT, unit=0, pts_us=0)))
        heard.append(m.decode_control(str(await connection.recv())))
        await connection.send(m.encode_control(m.Bye(reason="enough")))

    queued: list[m.Queued] = []
    async with server(handler) as url, open_session(url, m.Hello()) as session:
        assert await session.wait_ready(queued.append) == READY
        came = [message async for message in session.incoming()]
    assert queued == [m.Queued(position=2, eta_s=3.0)]
    assert [type(message) for message in came] == [MediaUnit, m.Bye]
    assert heard == [m.Pong(sent_us=7)]


async def test_stale_units_are_hidden_but_acknowledged() -> None:
    acked: list[object] = []

    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(m.encode_control(READY))
        await connection.send(m.encode_control(m.Interrupted(epoch=2, heard_pts=0)))
        await connection.send(encode_media(MediaUnit(kind=MediaKind.AGENT, unit=5, pts_us=0, epoch=1)))
        acked.append(m.decode_control(str(await connection.recv())))
        await connection.close()

    async with server(handler) as url:
        came = await hold_session(url)
    assert [type(message) for message in came] == [m.Interrupted]
    assert acked == [m.Ack(unit=5)]


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (CloseCode.UNAUTHORISED, Unauthorised, "--token"),
        (CloseCode.VERSION_MISMATCH, ConnectionFailed, "fit together: because"),
        (CloseCode.TRY_AGAIN_LATER, ConnectionFailed, "busy: because"),
        (CloseCode.GOING_AWAY, ConnectionFailed, "shutting down"),
        (CloseCode.INTERNAL, ConnectionFailed, "ended the session: because"),
    ],
)
async def test_a_refusal_says_what_to_do(code: CloseCode, error: type[ConnectionFailed], text: str) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(code, "because")

    async with server(handler) as url:
        with pytest.raises(error, match=text) as caught:
            await hold_session(url)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == (2 if error is Unauthorised else 1)


async def test_the_server_s_own_words_win() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        error = m.Error(code="model-failed", message="the model ran out of memory", fatal=True)
        await connection.send(m.encode_control(error))
        await connection.close(CloseCode.INTERNAL, "see error")

    async with server(handler) as url:
        with pytest.raises(ConnectionFailed, match="the model ran out of memory"):
            await hold_session(url)


async def test_a_warning_is_logged_and_the_session_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(m.encode_control(READY))
        warning = m.Warning(code="text-refused", message="“?!” will not be answered")
        await connection.send(m.encode_control(warning))
        await connection.close()

    async with server(handler) as url:
        assert [type(message) for message in await hold_session(url)] == [m.Warning]
    assert "“?!” will not be answered" in caplog.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("not by that name", r"refused with HTTP 421: not by that name$"),
        ("<html>\n<p>elsewhere</p>", r"refused with HTTP 421$"),
        ("", r"refused with HTTP 421$"),
    ],
)
async def test_a_refused_handshake_says_why(body: str, words: str) -> None:
    def refuse(connection: ServerConnection, _request: object) -> Response:
        return connection.respond(HTTPStatus.MISDIRECTED_REQUEST, body)

    async with server(lambda _: asyncio.sleep(0), process_request=refuse) as url:
        with pytest.raises(ConnectionFailed, match=words):
            await hold_session(url)


async def test_an_end_before_ready_is_a_failure() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()

    async with server(handler) as url:
        with pytest.raises(ConnectionFailed, match="before the session began"):
            await hold_session(url)


async def test_a_cut_connection_is_noticed() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(m.encode_control(READY))
        connection.transport.abort()

    async with server(handler) as url:
        with pytest.raises(ConnectionFailed, match="the connection was lost"):
            await hold_session(url)


async def test_a_server_that_breaks_the_protocol_is_left() -> None:
    codes: list[int | None] = []

    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(b"\x02garbage")
        await connection.wait_closed()
        codes.append(connection.close_code)

    async with server(handler) as url:
        with pytest.raises(ConnectionFailed, match="broke the protocol"):
            await hold_session(url)
    assert codes == [CloseCode.INVALID_DATA]


async def test_leaving_sends_bye() -> None:
    heard: list[object] = []
    closed = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(m.encode_control(READY))
        heard.append(m.decode_control(str(await connection.recv())))
        closed.set()

    async with server(handler) as url:
        async with open_session(url, m.Hello()) as session:
            await session.wait_ready(lambda _queued: None)
        await closed.wait()
    assert heard == [m.Bye(reason="client ends")]


async def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(ConnectionFailed, match="no server there: connection refused"):
            await hold_session(f"ws://{host}:{port}/v1/session")


async def test_something_else_answers() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.wait_closed()

    for subprotocol in ("chat", None):
        async with server(handler, subprotocol) as url:
            with pytest.raises(ConnectionFailed):
                await hold_session(url)


async def test_another_kind_of_server_answers() -> None:
    async def handler(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    listening = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="no Thinker"):
            await hold_session(f"ws://127.0.0.1:{port}/v1/session")

"""Who gets in, and in which order."""

import asyncio
import contextlib
from typing import Any

import pytest
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from protocol import messages as m
from thinker.server.access import Access
from thinker.server.limits import ClientLimits
from thinker.server.session_manager import SessionManager


async def test_clients_wait_their_turn(server: Any) -> None:
    async with await server.connect() as first:
        await first.start()
        second, third = await server.connect(), await server.connect()
        await second.send_hello()
        assert (await second.next(m.Queued)).position == 1
        await third.send_hello()
        assert (await third.next(m.Queued)).position == 2
        await second.socket.close()
        assert (await third.next(m.Queued)).position == 1
        await first.say(m.Bye())
        assert await third.next(m.Ready)
        assert server.engine.opened == 2
        await third.socket.close()


async def test_who_waits_hears_how_long(server: Any) -> None:
    async with await server.connect() as first, await server.connect() as second:
        await first.start()
        await second.send_hello()
        assert await second.next(m.Queued) == m.Queued(position=1, eta_s=None)
        for waits_s, told_s in ((60.0, 60), (55.5, None), (53.1, 54), (50.0, None), (40.2, 41), (None, None)):
            server.engine.waits_s = waits_s
            server.app.state.manager.admission_queue.admit()
            if told_s is not None or waits_s is None:  # what differs little is not worth a message
                assert await second.next(m.Queued) == m.Queued(position=1, eta_s=told_s)
        server.engine.waits_s = 1000.0
        assert (await second.next(m.Queued)).eta_s == 1000
        server.engine.waits_s = 901.0
        server.app.state.manager.admission_queue.admit()
        server.engine.waits_s = 899.5
        assert (await second.next(m.Queued)).eta_s == 900, "not a tenth less, then a tenth"


async def test_clients_that_vanish_together_leave_the_slot_free(server: Any, caplog: Any) -> None:
    running, queued = await server.connect(), await server.connect()
    await running.start()
    await queued.send_hello()
    await queued.next(m.Queued)
    for client in (running, queued):
        client.socket.transport.abort()
    async with await server.connect() as late:
        await late.start()
        assert len(server.engine.open) == 1
    assert "Traceback" not in caplog.text


async def test_media_sent_while_waiting_is_no_fault(server: Any) -> None:
    async with await server.connect() as first, await server.connect() as second:
        first.session.ready = await first.start()
        await second.send_hello()
        await second.next(m.Queued)
        second.session.ready = first.session.ready
        await second.send_unit()
        await first.say(m.Bye())
        assert await second.next(m.Ready)


async def test_sessions_wait_for_the_engine_to_be_ready(server: Any) -> None:
    server.engine.ready = False
    async with await server.connect() as client:
        await client.send_hello()
        assert (await client.next(m.Queued)).position == 1
        server.engine.ready = True
        assert await client.next(m.Ready)


async def test_a_fault_of_the_engine_reaches_those_who_wait_too(server: Any) -> None:
    async with await server.connect() as first, await server.connect() as second:
        await first.start()
        await second.send_hello()
        await second.next(m.Queued)
        server.engine.fail("the Performer is gone")
        for client in (first, second):
            assert (await client.next(m.Error)).fatal
            assert await client.closed() == (1011, "the Performer is gone")
        async with await server.connect() as late:
            await late.send_hello()
            assert (await late.closed())[0] == 1011


async def test_a_full_queue_turns_clients_away(run_server: Any) -> None:
    async with (
        run_server(limits=ClientLimits(waiting_sessions=2)) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        server.engine.slots = 0
        for position in range(1, 3):
            client = await stack.enter_async_context(await server.connect())
            await client.send_hello()
            assert (await client.next(m.Queued)).position == position
        late = await stack.enter_async_context(await server.connect())
        await late.send_hello()
        assert await late.closed() == (1013, "too many clients wait already")


async def test_the_subprotocol_must_be_offered(server: Any) -> None:
    for subprotocols in (None, ["chat"]):
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(subprotocols=subprotocols)
        assert refused.value.response.status_code == 400
        assert m.SUBPROTOCOL.encode() in refused.value.response.body


async def test_a_token_is_wanted(run_server: Any) -> None:
    async with run_server(token="sesame") as server:
        for hello, query in (
            (m.Hello(), ""),
            (m.Hello(token="wrong"), ""),
            (m.Hello(), "?token=wrong"),
            (m.Hello(token="sesame"), "?token="),
        ):
            async with await server.connect(hello, query=query) as client:
                with contextlib.suppress(ConnectionClosed):  # a wrong one in the address is enough
                    await client.send_hello()
                assert await client.closed() == (4001, "the token is missing or wrong")
        for hello, query in ((m.Hello(token="sesame"), ""), (m.Hello(), "?token=sesame")):
            async with await server.connect(hello, query=query) as client:
                await client.start()


async def test_connections_have_a_bound(run_server: Any) -> None:
    async with run_server(limits=ClientLimits(connections=1)) as server, await server.connect() as client:
        await client.send_hello()
        await server.until(lambda: server.engine.open)
        with pytest.raises(InvalidStatus) as refused:
            await server.connect()
        assert refused.value.response.status_code == 503


async def test_who_keeps_back_the_hello_makes_room(run_server: Any) -> None:
    limits = ClientLimits(connections=1)
    async with (
        run_server(limits=limits) as server, await server.connect() as silent,
        await server.connect() as client,
    ):  # fmt: skip
        assert (await silent.closed())[0] == 1013
        await client.start()


async def test_connections_count_before_they_are_accepted(engine: Any) -> None:
    """Many can come while the first is still being accepted."""
    access = Access(token=None, operator_secret=None)
    manager = SessionManager(engine, access=access, limits=ClientLimits(connections=1))
    accepting, go_on = asyncio.Event(), asyncio.Event()
    sent: list[tuple[str, int | None]] = []

    async def connect() -> None:
        arriving = iter(("websocket.connect", "websocket.disconnect"))

        async def receive() -> dict[str, str]:
            return {"type": next(arriving)}

        async def send(message: Any) -> None:
            sent.append((message["type"], message.get("status")))
            accepting.set()
            await go_on.wait()

        scope = {"type": "websocket", "subprotocols": [m.SUBPROTOCOL], "headers": [], "query_string": b""}
        await manager.session(
            WebSocket({**scope, "extensions": {"websocket.http.response": {}}}, receive, send)
        )

    connections = [asyncio.create_task(connect())]
    await accepting.wait()
    connections += [asyncio.create_task(connect()) for _ in range(3)]
    go_on.set()
    await asyncio.gather(*connections)
    # The second makes the first go, which has said nothing; so many at most are on their way out.
    assert sent.count(("websocket.accept", None)) <= 2
    assert [each for each in sent if "http" in each[0]] == 2 * [
        ("websocket.http.response.start", 503),
        ("websocket.http.response.body", None),
    ]

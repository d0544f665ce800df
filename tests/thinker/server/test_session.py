"""A session over a real WebSocket: media, text, interruptions, and what a client may not do."""

import asyncio
import contextlib
import struct
from typing import Any

import numpy as np
import pytest
import simplejpeg
from websockets.exceptions import ConnectionClosed

from protocol import messages as m
from protocol.media import MediaFlags, MediaUnit, decode_media
from protocol.session import Send
from thinker.server.limits import ClientLimits


def tone(unit: int) -> np.ndarray:
    t = np.arange(2_560 * unit, 2_560 * (unit + 1)) / 16_000
    pcm: np.ndarray = np.rint(np.sin(2 * np.pi * 440 * t) * 12_000).astype(np.int16)
    return pcm


def picture(shade: int, height: int = 48, width: int = 64) -> bytes:
    return bytes(simplejpeg.encode_jpeg(np.full((height, width, 3), shade, np.uint8), 90))


def samples(unit: MediaUnit) -> np.ndarray:
    return np.frombuffer(unit.audio, "<i2")


async def test_ready_says_what_the_model_works_in(server: Any) -> None:
    async with await server.connect() as client:
        ready = await client.start()
    assert client.socket.subprotocol == m.SUBPROTOCOL
    assert (ready.model, ready.unit_ms, ready.fps, ready.frames_per_unit) == ("echo", 160, 25, 4)
    assert (ready.sample_rate, ready.height, ready.width) == (16_000, 64, 64)
    assert (ready.input_rate, ready.input_height, ready.input_width) == (16_000, 32, 32)
    assert (ready.audio_codec, ready.video_codec, ready.resumed) == ("pcm16", "jpeg", False)
    assert ready.session_id
    assert ready.resume_token is None, "a session ends with its socket"


async def test_what_the_user_shows_and_says_comes_back(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        inbox = server.engine.open[0].inbox
        for unit in range(3):
            await client.send_unit(tone(unit), *(picture(40 * (unit + 1)) for _ in range(4)))
            await server.until(lambda: inbox.backlog() == (2_560, 4, 0))
            await server.engine.tick()
            answer = await client.next(MediaUnit)
            assert (answer.unit, answer.pts_us, answer.epoch) == (unit, unit * 160_000, 0)
            assert answer.flags == 0
            assert np.array_equal(samples(answer), tone(unit))
            shown = np.stack([simplejpeg.decode_jpeg(frame, "RGB") for frame in answer.frames])
            assert shown.shape == (4, 64, 64, 3)
            assert np.abs(shown.astype(int) - 40 * (unit + 1)).max() <= 3


async def test_sound_of_another_rate_is_converted(server: Any) -> None:
    async with await server.connect(m.Hello(audio_rate=48_000)) as client:
        await client.start()
        inbox = server.engine.open[0].inbox
        for unit in range(2):
            sent = np.rint(np.sin(2 * np.pi * 440 * np.arange(7_680) / 48_000) * 12_000)
            await client.send_unit(sent)
            await server.until(lambda: inbox.backlog()[0] >= 2_560)
            await server.engine.tick()
            answer = await client.next(MediaUnit)
            assert answer.unit == unit
            assert np.abs(samples(answer)[-100:].astype(int)).max() > 6_000


async def test_typed_text_is_heard_and_answered_in_order(server: Any) -> None:
    async with await server.connect(m.Hello(texts=["hello", "there"])) as client:
        await client.start()
        await server.engine.tick()
        assert (await client.next(m.AgentState)).state == "speaking"
        assert await client.next(m.Heard) == m.Heard(request="hello", unit=0)
        assert await client.next(m.TextDelta) == m.TextDelta(text="hello there", unit=0)
        assert (await client.next(MediaUnit)).unit == 0
        await client.say(m.Text(text="more"))
        await server.until(lambda: server.engine.open[0].inbox.backlog()[2] == 1)
        await server.engine.tick(2)
        assert await client.next(m.TextDelta) == m.TextDelta(text="more", unit=1)
        assert (await client.next(m.AgentState)).state == "listening"


async def test_too_much_text_is_refused_with_a_warning(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        for i in range(33):
            await client.say(m.Text(text=f"line {i}"))
        warning = await client.next(m.Warning)
        assert warning.code == "text-refused"
        assert warning.message.startswith("“line 32” ")
        await server.engine.tick()
        assert (await client.next(m.TextDelta)).text.endswith("line 31")


async def test_a_line_that_is_too_long_is_refused_at_once(server: Any) -> None:
    long, longest = "x" * (m.MAX_TEXT_CHARS + 1), "y" * m.MAX_TEXT_CHARS
    async with await server.connect(m.Hello(texts=[long, "hello"])) as client:
        await client.send_hello()
        warning = await client.next(m.Warning)
        assert warning.code == "text-refused"
        assert warning.message == f"“{'x' * 60}…” will not be answered: a line has 4000 characters at most"
        await client.next(m.Ready)
        await client.say(m.Text(text=long))
        assert (await client.next(m.Warning)).code == "text-refused"
        await server.engine.tick()
        assert (await client.next(m.TextDelta)).text == "hello", "the session goes on"
        await client.say(m.Text(text=longest))
        await client.say(m.Text(text="one more"))
        assert (await client.next(m.Warning)).message.startswith("“one more” will not be answered: too much")
        await server.engine.tick()
        assert (await client.next(m.TextDelta)).text == longest
        assert [unit.texts for unit in server.engine.open[0].taken] == [("hello",), (longest,)]


async def test_lines_lost_to_an_interruption_are_told(server: Any, value: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        for text in ("one", "two"):
            await client.say(m.Text(text=text))
        await client.say(m.Interrupt())
        await client.next(m.Interrupted)
        for text in ("one", "two"):
            warning = await client.next(m.Warning)
            assert warning.code == "text-refused"
            assert warning.message.startswith(f"“{text}” will not be answered: you interrupted")
        await server.engine.tick()
        assert server.engine.open[0].taken[0].texts == ()
        assert value(server.app.state.manager.metrics.refused_texts) == 2


async def test_a_line_that_is_refused_in_a_void_unit_is_told(server: Any) -> None:
    async with await server.connect(m.Hello(texts=["…?", "hello"])) as client:
        await client.start()
        session = server.engine.open[0]
        taken = session.inbox.take()  # the model began this unit before the interruption
        await client.say(m.Interrupt())
        await client.next(m.Interrupted)
        original, session.inbox = session.inbox, _Fixed(taken)
        await server.engine.tick()
        session.inbox = original
        assert (await client.next(m.Warning)).message.startswith("“…?” ")
        await server.engine.tick()
        answer = await client.next(MediaUnit)
        assert (answer.epoch, answer.unit) == (1, 1), "no media of the void unit"


async def test_sessions_that_run_together_hear_only_their_own(server: Any) -> None:
    server.engine.slots = 3
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await server.connect()) for _ in range(3)]
        for number, client in enumerate(clients):
            await client.start()
            await client.send_unit(np.full(2_560, 1000 * (number + 1)))
            inbox = server.engine.open[number].inbox
            await server.until(lambda inbox=inbox: inbox.backlog()[0] >= 2_560)
        await server.engine.tick()
        for number, client in enumerate(clients):
            assert set(samples(await client.next(MediaUnit)).tolist()) == {1000 * (number + 1)}


async def test_every_line_that_the_model_refuses_is_told(server: Any, value: Any) -> None:
    long = "…" * 61
    async with await server.connect(m.Hello(texts=["…?", "hello", long])) as client:
        await client.start()
        await server.engine.tick()
        for beginning in ("“…?” ", f"“{'…' * 60}…” "):
            warning = await client.next(m.Warning)
            assert warning.code == "text-refused"
            assert warning.message.startswith(beginning)
        assert (await client.next(m.TextDelta)).text == "hello"
        assert value(server.app.state.manager.metrics.refused_texts) == 2


async def test_an_interruption_voids_what_was_on_its_way(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        client.acks = False
        await server.tick_through(9)  # 8 may be in flight, one waits at the server
        for unit in range(8):
            assert (await client.next(MediaUnit)).unit == unit
        await client.say(m.Ack(unit=2, played_pts=400_000))
        await client.say(m.Interrupt())
        interrupted = await client.next(m.Interrupted)
        assert interrupted == m.Interrupted(epoch=1, heard_pts=400_000)
        client.acks = True
        await client.say(m.Ack(unit=8, played_pts=400_000))
        await server.engine.tick(1)
        answer = await client.next(MediaUnit)
        assert answer.epoch == 1
        assert MediaFlags.INTERRUPTED in answer.flags
        assert client.session.stale_units <= 1
        assert server.engine.open[0].taken[-1].interrupted
        await client.say(m.Interrupt())
        assert (await client.next(m.Interrupted)).epoch == 2


async def test_units_of_an_older_epoch_never_leave(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        session = server.engine.open[0]
        taken = session.inbox.take()  # the model began this unit before the interruption
        await client.say(m.Interrupt())
        await client.next(m.Interrupted)
        original, session.inbox = session.inbox, _Fixed(taken)
        await server.engine.tick(3)
        session.inbox = original
        await server.engine.tick(1)
        answer = await client.next(MediaUnit)
        assert (answer.epoch, answer.unit, client.session.stale_units) == (1, 3, 0)


class _Fixed:
    def __init__(self, unit: Any) -> None:
        self.unit = unit

    def take(self) -> Any:
        return self.unit


async def test_a_pause_stops_media_and_words(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        await client.say(m.Pause())
        await client.send_unit(tone(0))
        await client.say(m.Text(text="unheard"))
        await server.until(lambda: server.engine.open[0].inbox.backlog()[2] == 1)
        await server.engine.tick()
        assert (await client.next(m.AgentState)).state == "speaking", "the model goes on"
        assert not server.engine.open[0].taken[0].pcm.any()
        await client.say(m.Resume())
        await client.say(m.Text(text="back"))
        await server.until(lambda: server.engine.open[0].inbox.backlog()[2] == 1)
        await server.engine.tick()
        assert await client.next(m.TextDelta) == m.TextDelta(text="back", unit=1)
        answer = await client.next(MediaUnit)
        assert answer.unit == 1
        assert MediaFlags.DISCONTINUITY in answer.flags


async def test_bye_ends_in_order(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        await client.say(m.Bye(reason="enough"))
        assert await client.closed() == (1000, "enough")
    await server.until(lambda: server.engine.open == [])


async def test_a_clients_reason_is_one_line_of_the_log(server: Any, caplog: Any) -> None:
    with caplog.at_level("INFO", "thinker.server.session"):
        async with await server.connect() as client:
            await client.start()
            await client.say(m.Bye(reason="enough\nERROR all is lost"))
            await client.closed()
        await server.until(lambda: server.engine.open == [])
    (line,) = (message for message in caplog.messages if "is over" in message)
    assert line.endswith(r"1000 'enough\nERROR all is lost'")


async def test_a_vanished_client_frees_its_slot(server: Any) -> None:
    client = await server.connect()
    await client.start()
    client.socket.transport.abort()
    await server.until(lambda: server.engine.open == [])
    await server.engine.tick()


async def test_a_client_without_acks_loses_media_then_its_place(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        await server.tick_through(8 + 3 + 31)
        await server.engine.tick()
        code, reason = await client.closed()
    assert code == 1013
    assert "too slow" in reason
    units = [decode_media(message) for message in client.heard if isinstance(message, bytes)]
    assert [unit.unit for unit in units if isinstance(unit, MediaUnit)] == list(range(8))


async def test_a_client_that_comes_back_sees_where_units_are_missing(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        client.acks = False
        await server.tick_through(16)
        for _ in range(8):
            await client.next(MediaUnit)
        client.acks = True
        await client.say(m.Ack(unit=7))
        answers = [await client.next(MediaUnit) for _ in range(3)]
    assert [answer.unit for answer in answers] == [13, 14, 15]
    assert MediaFlags.DISCONTINUITY in answers[0].flags
    assert [bool(answer.frames) for answer in answers] == [False, True, True]
    assert all(answer.audio for answer in answers)


async def test_losses_show_while_the_session_runs(server: Any, value: Any) -> None:
    metrics = server.app.state.manager.metrics
    async with await server.connect() as client:
        await client.start()
        client.acks = False
        await client.send_unit(np.ones(5 * 2_560, np.int16))
        inbox = server.engine.open[0].inbox
        await server.until(lambda: inbox.backlog()[0] == 4 * 2_560)
        assert value(metrics.dropped_samples) == 2_560
        await server.tick_through(8 + 3 + 2)
        assert value(metrics.missing_samples) == (8 + 3 + 2 - 4) * 2_560
        assert value(metrics.lost_units) == 2
        assert value(metrics.lost_frames) == 4 * 3
        for underruns in (2, 2, 3, 1):
            await client.say(m.Ack(unit=0, underruns=underruns))
        await server.until(lambda: value(metrics.underruns) == 2)
        assert value(metrics.sessions) == 1


async def test_a_picture_that_is_none_costs_a_warning(server: Any) -> None:
    bomb = bytearray(picture(9))
    struct.pack_into(">HH", bomb, bomb.find(b"\xff\xc0") + 5, 30_000, 30_000)
    async with await server.connect() as client:
        await client.start()
        await client.send_unit(tone(0), bytes(bomb))
        warning = await client.next(m.Warning)
        assert warning == m.Warning(code="bad-picture", message="a picture of 30000x30000 is too large")
        await client.send_unit(tone(1), b"", b"garbage", picture(200))
        await server.until(lambda: server.engine.open[0].inbox.backlog()[0] == 2 * 2_560)
        await server.engine.tick()
        assert np.array_equal(samples(await client.next(MediaUnit)), tone(0))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("no json", 1007),
        ("[" * 60_000, 1007),
        ('{"type":"text","text":7}', 1007),
        ('{"type":"text","text":"' + "x" * 70_000 + '"}', 1009),
        ('{"type":"hello"}', 1002),
        (b"", 1007),
        (b"\x01\x01" + b"\xff" * 300, 1007),
        (bytes(4 * 1024 * 1024 + 1), 1009),
    ],
)
async def test_malformed_messages_end_their_session_alone(server: Any, sent: str | bytes, code: int) -> None:
    server.engine.slots = 2
    async with await server.connect() as good, await server.connect() as bad:
        await good.start()
        await bad.start()
        with contextlib.suppress(ConnectionClosed):  # too large a message is cut off while it is sent
            await bad.socket.send(sent)
        closed, reason = await bad.closed()
        assert closed == code
        assert reason
        await server.until(lambda: len(server.engine.open) == 1)
        await server.engine.tick()
        assert (await good.next(MediaUnit)).unit == 0


async def test_text_that_is_not_utf8_ends_the_session(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        await client.socket.send(b"\xff\xfe", text=True)
        assert (await client.closed())[0] == 1007
    await server.until(lambda: server.engine.open == [])


@pytest.mark.parametrize("rate", [1, 7_999, 384_000])
async def test_a_rate_that_nothing_has_is_refused(server: Any, rate: int) -> None:
    async with await server.connect(m.Hello(audio_rate=rate)) as client:
        await client.send_hello()
        code, reason = await client.closed()
    assert code == 1003
    assert f"audio_rate {rate}" in reason
    assert server.engine.opened == 0


async def test_a_flood_is_cut_off(run_server: Any) -> None:
    async with run_server(limits=ClientLimits(bucket_burst=50, bucket_per_s=1)) as server:
        async with await server.connect() as client:
            await client.start()
            with contextlib.suppress(ConnectionClosed):
                for _ in range(60):
                    await client.socket.send('{"type":"unknown"}')
            code, reason = await client.closed()
        assert (code, reason) == (1008, "more messages or bytes than a session needs")
        await server.until(lambda: server.engine.open == [])


async def test_a_whole_burst_is_answered(server: Any) -> None:
    """It arrives at once, so all the answers wait before the first one is written."""
    async with await server.connect() as client:
        await client.start()
        pings = range(ClientLimits().bucket_burst - 10)
        for ping in pings:
            await client.say(m.Ping(sent_us=ping))
        assert [(await client.next(m.Pong)).sent_us for _ in pings] == list(pings)


async def test_a_client_that_says_nothing_at_all_is_let_go(run_server: Any) -> None:
    async with run_server(limits=ClientLimits(hello_s=0.1)) as server, await server.connect() as client:
        assert await client.closed() == (4002, "no hello within 0.1 s")


async def test_a_client_that_falls_silent_frees_its_slot(run_server: Any) -> None:
    async with run_server(limits=ClientLimits(ping_every_s=0.05, silent_s=0.3)) as server:
        async with await server.connect() as client:
            await client.start()
            for _ in range(8):
                await client.next(Send)  # the answer to a ping: so it may stay
            assert len(server.engine.open) == 1
            assert await client.closed() == (1013, "nothing heard for 0.3 s")
        await server.until(lambda: server.engine.open == [])


async def test_a_client_that_reads_nothing_holds_up_nobody(run_server: Any) -> None:
    """Four such units are more than the sockets between can hold, so the writer really stands still."""
    limits = ClientLimits(ping_every_s=0.1, silent_s=2.0, close_s=0.1)
    async with run_server(limits=limits) as server:
        server.engine.slots = 2
        async with (
            await server.connect(max_queue=1, close_timeout=0.1) as stuck,
            await server.connect() as good,
        ):
            await stuck.start()
            server.engine.paints = np.random.default_rng(0).integers(0, 256, (4, 850, 850, 3), np.uint8)
            await server.tick_through(4)
            server.engine.paints = None
            await good.start()
            await server.engine.tick()
            assert (await good.next(MediaUnit)).unit == 0
            reading = asyncio.create_task(good.next(m.Queued))  # never comes; pings are answered meanwhile
            await server.until(lambda: len(server.engine.open) < 2)
            assert [session.number for session in server.engine.open] == [2]
            reading.cancel()


async def test_the_servers_ping_comes_back_answered(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        await client.say(m.Ping(sent_us=123))
        assert await client.next(m.Pong) == m.Pong(sent_us=123)


async def test_the_engines_end_reaches_the_user(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        server.engine.open[0].on_end("the Performer is gone")
        error = await client.next(m.Error)
        assert error == m.Error(code="engine-failed", message="the Performer is gone", fatal=True)
        assert await client.closed() == (1011, "the Performer is gone")


async def test_a_fault_of_ours_is_logged_and_ends_one_session(server: Any, caplog: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        session = server.engine.open[0].on_unit.__self__
        session._agent_units.put("no unit at all")
        assert (await client.next(m.Error)).message == "the server failed"
        assert await client.closed() == (1011, "the server failed")
    assert f"session {session.session_id} failed" in caplog.text
    async with await server.connect() as client:
        await client.start()

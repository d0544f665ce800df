"""Both ends' state machines, talking to each other and to liars."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import messages as m
from protocol.errors import Close, CloseCode
from protocol.media import (
    AudioEncoding,
    MediaFlags,
    MediaKind,
    MediaUnit,
    VideoEncoding,
    decode_media,
    encode_media,
)
from protocol.messages import encode_control
from protocol.outgoing import Lost, OutgoingLimits
from protocol.session import ClientProtocol, Event, Send, ServerProtocol, State

READY = m.Ready(
    session_id="s1",
    resume_token="r1",
    unit_ms=160,
    fps=25,
    frames_per_unit=4,
    sample_rate=16000,
    width=128,
    height=128,
    input_width=64,
    input_height=64,
    input_rate=16000,
    audio_codec="pcm16",
    video_codec="jpeg",
    model="pocket",
)


def agent_unit(number: int, epoch: int = 0) -> MediaUnit:
    return MediaUnit(kind=MediaKind.AGENT, epoch=epoch, unit=number, pts_us=number * 160_000, audio=b"ab")


def connected(limits: OutgoingLimits | None = None) -> tuple[ServerProtocol, ClientProtocol]:
    server, client = ServerProtocol(limits=limits), ClientProtocol(m.Hello())
    server.receive(client.hello())
    client.receive(server.send(READY))
    return server, client


def close_of(events: list[Event]) -> Close:
    (event,) = events
    assert isinstance(event, Close)
    return event


def test_hello_queued_ready() -> None:
    hello = m.Hello(camera=True, texts=["hi"])
    server, client = ServerProtocol(), ClientProtocol(hello)
    assert server.receive(client.hello()) == [hello]
    assert client.receive(server.send(m.Queued(position=1))) == [m.Queued(position=1)]
    assert (server.state, client.state) == (State.QUEUED, State.QUEUED)
    assert client.receive(server.send(READY)) == [READY]
    assert (server.state, client.state) == (State.READY, State.READY)
    assert client.ready == READY


def test_user_units_are_numbered_and_stamped() -> None:
    server, client = connected()
    first = server.receive(client.send_unit(b"ab", (b"jpeg",)))
    client.skip_units(2)
    second = server.receive(client.send_unit(b"", ()))
    assert first == [MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, audio=b"ab", frames=(b"jpeg",))]
    assert second == [
        MediaUnit(
            kind=MediaKind.USER,
            unit=3,
            pts_us=480_000,
            audio_codec=AudioEncoding.NONE,
            video_codec=VideoEncoding.NONE,
        )
    ]


def test_a_repeated_user_unit_is_dropped() -> None:
    server, client = connected()
    frame = client.send_unit(b"ab", ())
    assert len(server.receive(frame)) == 1
    assert server.receive(frame) == []


def test_agent_units_flow_as_far_as_acks_allow() -> None:
    server, client = connected(OutgoingLimits(window=1))
    for number in range(2):
        assert server.offer(agent_unit(number)) == []
    frame = server.next_media()
    assert frame is not None
    assert client.receive(frame) == [agent_unit(0)]
    assert server.next_media() is None
    ack = m.Ack(unit=0, played_pts=5)
    assert server.receive(client.send(ack)) == [ack]
    assert server.next_media() == encode_media(agent_unit(1))


def test_an_interruption_voids_older_units_on_both_sides() -> None:
    server, client = connected()
    server.offer(agent_unit(0))
    on_its_way = server.next_media()
    server.offer(agent_unit(1))
    assert server.receive(client.send(m.Interrupt())) == [m.Interrupt()]
    client.receive(server.send(m.Interrupted(epoch=1, heard_pts=0)))
    assert on_its_way is not None
    assert client.receive(on_its_way) == []
    assert client.stale_units == 1
    assert server.offer(agent_unit(2, epoch=0)) == []
    assert server.next_media() is None
    server.offer(agent_unit(3, epoch=1))
    frame = server.next_media()
    assert frame is not None
    (unit,) = client.receive(frame)
    assert isinstance(unit, MediaUnit)
    assert (unit.unit, unit.epoch, unit.flags) == (3, 1, MediaFlags.INTERRUPTED)


def test_a_pause_stops_media_both_ways() -> None:
    server, client = connected()
    assert server.receive(client.send(m.Pause())) == [m.Pause()]
    assert server.receive(client.send_unit(b"ab", ())) == []
    assert server.offer(agent_unit(0)) == []
    assert server.next_media() is None
    server.receive(client.send(m.Resume()))
    server.offer(agent_unit(1))
    frame = server.next_media()
    assert frame is not None
    unit = decode_media(frame)
    assert isinstance(unit, MediaUnit)
    assert MediaFlags.DISCONTINUITY in unit.flags


def test_a_client_far_behind_is_closed_with_try_again_later() -> None:
    server, _ = connected(OutgoingLimits(window=1, patience=2))
    events = [event for number in range(20) for event in server.offer(agent_unit(number))]
    assert events[:-1] == [Lost(units=1, frames=0)] * 2
    assert close_of(events[-1:]).code is CloseCode.TRY_AGAIN_LATER
    assert server.state is State.CLOSED


def test_pings_are_answered_in_every_state() -> None:
    for machine in (ServerProtocol(), ClientProtocol(m.Hello()), *connected()):
        assert machine.receive(encode_control(m.Ping(sent_us=7))) == [Send(encode_control(m.Pong(sent_us=7)))]
        assert machine.receive(encode_control(m.Pong(sent_us=7))) == [m.Pong(sent_us=7)]


def test_bye_ends_both_sides_in_order() -> None:
    server, client = connected()
    bye = m.Bye(reason="enough")
    assert server.receive(client.send(bye)) == [bye, Close(CloseCode.NORMAL, "enough")]
    assert (server.state, client.state) == (State.CLOSED, State.CLOSED)
    assert server.receive(encode_control(m.Ping(sent_us=0))) == []
    assert server.close(CloseCode.GOING_AWAY, "again") == []


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (m.Hello(version=2, token="right"), CloseCode.VERSION_MISMATCH),
        (m.Hello(), CloseCode.UNAUTHORISED),
        (m.Hello(token="wröng"), CloseCode.UNAUTHORISED),
        (m.Hello(token="right", audio_codecs=["opus"]), CloseCode.UNSUPPORTED),
        (m.Hello(token="right", video_codecs=[]), CloseCode.UNSUPPORTED),
    ],
)
def test_a_hello_that_does_not_fit_is_closed_with_its_code(hello: m.Hello, code: CloseCode) -> None:
    assert close_of(ServerProtocol(token="right").receive(encode_control(hello))).code is code


def test_the_right_token_is_let_in() -> None:
    assert len(ServerProtocol(token="right").receive(encode_control(m.Hello(token="right")))) == 1


@pytest.mark.parametrize(
    "data",
    [
        encode_control(m.Text(text="too early")),
        encode_control(READY),
        encode_media(MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0)),
    ],
)
def test_anything_before_hello_is_a_protocol_error(data: str | bytes) -> None:
    assert close_of(ServerProtocol().receive(data)).code is CloseCode.PROTOCOL_ERROR


def test_messages_of_the_wrong_side_are_protocol_errors() -> None:
    server, client = connected()
    assert close_of(server.receive(encode_control(READY))).code is CloseCode.PROTOCOL_ERROR
    assert close_of(client.receive(encode_control(m.Text(text="a")))).code is CloseCode.PROTOCOL_ERROR
    server, client = connected()
    assert close_of(server.receive(encode_media(agent_unit(0)))).code is CloseCode.PROTOCOL_ERROR
    assert close_of(client.receive(client.send_unit(b"", ()))).code is CloseCode.PROTOCOL_ERROR


def test_a_client_takes_every_message_of_the_server_that_its_state_allows() -> None:
    messages = [
        m.TextDelta(text="a", unit=0), m.Heard(request="a", unit=0), m.AgentState(state="speaking"),
        m.Metrics(stages_ms={}, model_side_ms=0.0, loop_ms=0.0), m.Interrupted(epoch=1, heard_pts=0),
        m.Warning(code="a", message=""), m.Error(code="a", message="", fatal=False),
        m.Queued(position=1), READY,
    ]  # fmt: skip
    assert {type(message) for message in messages} | {m.Ping, m.Pong, m.Bye} == set(get_args(m.ServerMessage))
    for allowed, make_client in (
        ({m.Queued, m.Ready, m.Warning, m.Error}, queued_client),
        ({type(message) for message in messages} - {m.Queued, m.Ready}, lambda: connected()[1]),
    ):
        for message in messages:
            events = make_client().receive(encode_control(message))
            if type(message) in allowed:
                assert events == [message]
            else:
                assert close_of(events).code is CloseCode.PROTOCOL_ERROR


def queued_client() -> ClientProtocol:
    client = ClientProtocol(m.Hello())
    client.hello()
    return client


def test_codecs_that_were_not_negotiated_are_refused() -> None:
    opus = MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, audio_codec=AudioEncoding.OPUS)
    h264 = MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, video_codec=VideoEncoding.H264)
    for unit in (opus, h264):
        server, _ = connected()
        assert close_of(server.receive(encode_media(unit))).code is CloseCode.UNSUPPORTED


def test_media_while_queued_is_dropped_quietly() -> None:
    server = ServerProtocol()
    server.receive(encode_control(m.Hello()))
    assert server.receive(encode_media(MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0))) == []


def test_unknown_types_change_nothing() -> None:
    server, _ = connected()
    assert server.receive('{"type":"from.the.future"}') == []
    assert server.state is State.READY


@given(st.lists(st.text(max_size=30) | st.binary(max_size=60), max_size=4))
def test_whatever_arrives_ends_in_events(data: list[str | bytes]) -> None:
    for machine in connected():
        closes = [e for piece in data for e in machine.receive(piece) if isinstance(e, Close)]
        assert len(closes) == (machine.state is State.CLOSED)

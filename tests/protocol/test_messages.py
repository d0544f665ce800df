"""Control messages: exact text, round trips, and what wrong text becomes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import messages as m
from protocol.errors import MAX_REASON_BYTES, Close, CloseCode
from protocol.messages import decode_control, encode_control

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
EXAMPLES: list[m.ControlMessage] = [
    m.Hello(camera=True, microphone=True, token="t", texts=["hello"]),
    m.Text(text="how are you?"),
    m.Interrupt(),
    m.Pause(),
    m.Resume(),
    m.Ack(unit=7, played_pts=960_000, underruns=1),
    m.Queued(position=1, eta_s=3.5),
    m.Queued(position=2),
    READY,
    m.TextDelta(text="fine", unit=9),
    m.Heard(request="count_five", unit=8),
    m.Interrupted(epoch=1, heard_pts=1_000_000),
    m.AgentState(state="speaking"),
    m.Metrics(stages_ms={"encode": 4.0, "solve": 31.5}, model_side_ms=70.0, loop_ms=80.0, late=1, emitted=9),
    m.Warning(code="camera-bad", message="a picture could not be read"),
    m.Error(code="model-ended", message="the model ended", fatal=True),
    m.Ping(sent_us=5),
    m.Pong(sent_us=5),
    m.Bye(reason="done"),
]
GOLDEN = {
    '{"type":"text","text":"héllo"}': m.Text(text="héllo"),
    '{"type":"text.delta","text":"x","unit":3}': m.TextDelta(text="x", unit=3),
    '{"type":"heard","request":"count_five","unit":8}': m.Heard(request="count_five", unit=8),
    '{"type":"agent.state","state":"listening"}': m.AgentState(state="listening"),
    '{"type":"interrupt"}': m.Interrupt(),
    '{"type":"ack","unit":2,"played_pts":160000,"underruns":0}': m.Ack(unit=2, played_pts=160_000),
    '{"type":"queued","position":1,"eta_s":null}': m.Queued(position=1),
    '{"type":"error","code":"busy","message":"b","fatal":false}': m.Error(
        code="busy", message="b", fatal=False
    ),
}


@pytest.mark.parametrize(("text", "message"), GOLDEN.items())
def test_golden_text(text: str, message: m.ControlMessage) -> None:
    assert encode_control(message) == text
    assert decode_control(text) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_survives_the_round_trip(message: m.ControlMessage) -> None:
    assert decode_control(encode_control(message)) == message


def test_the_smallest_hello_has_the_defaults_of_the_reference() -> None:
    assert decode_control('{"type":"hello"}') == m.Hello(
        version=1, audio_codecs=["pcm16"], video_codecs=["jpeg"], audio_rate=16000, camera=False
    )


def test_unknown_types_and_fields_are_ignored() -> None:
    assert decode_control('{"type":"from.the.future","x":[1,2]}') is None
    assert decode_control('{"type":"text","text":"a","mood":{"of":"tomorrow"}}') == m.Text(text="a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ('{"text":"a"}', "type"),
        ('{"type":7}', "type"),
        ('{"type":"text"}', "text"),
        ('{"type":"text","text":""}', "length"),
        ('{"type":"ack","unit":-1}', "unit"),
        ('{"type":"ack","unit":1e400}', "unit"),
        ('{"type":"agent.state","state":"dreaming"}', "state"),
        ('{"type":"hello","audio_channels":0}', "audio_channels"),
        ('{"type":"text","text":"a","x":' + "[" * 60_000, "recursion"),
    ],
)
def test_malformed_text_is_a_fault_that_says_where(text: str, says: str) -> None:
    fault = decode_control(text)
    assert isinstance(fault, Close)
    assert fault.code is CloseCode.INVALID_DATA
    assert says in fault.reason


def test_too_long_is_refused_before_it_is_parsed() -> None:
    fault = decode_control(" " * (m.MAX_CONTROL_BYTES + 1))
    assert isinstance(fault, Close)
    assert fault.code is CloseCode.TOO_BIG


def test_reasons_fit_into_a_close_frame() -> None:
    fault = decode_control(json.dumps({"type": "hello", "texts": ["ok", 5], "é" * 500: 1}))
    assert isinstance(fault, Close)
    assert 0 < len(fault.reason.encode()) <= MAX_REASON_BYTES


@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_text_ends_in_a_value(text: str) -> None:
    result = decode_control(text)
    assert result is None or isinstance(result, m.Message | Close)


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_messages_end_in_a_value(message: m.ControlMessage, data: st.DataObject) -> None:
    text = encode_control(message)
    at = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, 5))
    damaged = text[:at] + data.draw(st.text(max_size=5)) + text[at + cut :]
    result = decode_control(damaged)
    assert result is None or isinstance(result, m.Message | Close)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(EXAMPLES), json_values, st.data())
def test_fields_of_the_wrong_kind_end_in_a_value(
    message: m.ControlMessage, value: object, data: st.DataObject
) -> None:
    fields = json.loads(encode_control(message))
    fields[data.draw(st.sampled_from(sorted(fields)))] = value
    result = decode_control(json.dumps(fields))
    assert result is None or isinstance(result, m.Message | Close)

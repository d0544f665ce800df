"""Control messages: JSON in WebSocket text frames, told apart by their field "type".

Unknown fields are ignored and unknown types decode to None, so that either end may be newer than the other.
Times: `*_ms` floats in milliseconds, `*_us` and `*_pts` integers in microseconds of media time.
"""

from typing import Annotated, get_args

import msgspec

from protocol.errors import Close, CloseCode, fault

SUBPROTOCOL = "thinker-performer.v1"
VERSION = 1
MAX_CONTROL_BYTES = 64 * 1024
MAX_TEXT_CHARS = 4000
MAX_HELLO_TEXTS = 32

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # 2**53: the largest integer that JavaScript keeps exact
Epoch = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Size = Annotated[int, msgspec.Meta(ge=1, le=16384)]
Rate = Annotated[int, msgspec.Meta(ge=1, le=384_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Secret = Annotated[str, msgspec.Meta(max_length=256)]
UserText = Annotated[str, msgspec.Meta(min_length=1)]  # over MAX_TEXT_CHARS: refused, the session goes on


def _type_name(class_name: str) -> str:
    """TextDelta → text.delta."""
    return "".join(f".{c.lower()}" if c.isupper() else c for c in class_name).lstrip(".")


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=_type_name):
    """Base of every control message."""


# ---- client to server


class Hello(Message, frozen=True):
    """First message of a connection: what the client can do, and what it brings.

    `camera`, `microphone` and `resume_token` are reserved: this version's server does not look at them.
    """

    version: int = VERSION
    audio_codecs: list[Name] = msgspec.field(default_factory=lambda: ["pcm16"])
    video_codecs: list[Name] = msgspec.field(default_factory=lambda: ["jpeg"])
    audio_rate: Rate = 16000
    audio_channels: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    camera: bool = False
    microphone: bool = False
    token: Secret | None = None
    resume_token: Secret | None = None
    texts: Annotated[list[UserText], msgspec.Meta(max_length=MAX_HELLO_TEXTS)] = []


class Text(Message, frozen=True):
    """The user typed something."""

    text: UserText


class Interrupt(Message, frozen=True):
    """The user wants the agent to stop speaking now."""


class Pause(Message, frozen=True):
    """The client sends no media for a while and wants neither media nor words."""


class Resume(Message, frozen=True):
    """End of a pause."""


class Ack(Message, frozen=True):
    """What the client received and played: last unit, media time heard, underruns since the start."""

    unit: Count
    played_pts: Count = 0
    underruns: Count = 0


# ---- server to client


class Queued(Message, frozen=True):
    """No free slot: the client waits at `position` (1 is next), for about `eta_s` seconds; null: unknown."""

    position: Annotated[int, msgspec.Meta(ge=1)]
    eta_s: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Ready(Message, frozen=True):
    """The session has begun: what the agent sends, and what the model wants from the user.

    `resume_token` and `resumed` are reserved: null and false mean that a session ends with its connection.
    """

    session_id: Name
    unit_ms: Count
    fps: Annotated[float, msgspec.Meta(gt=0, le=1000)]
    frames_per_unit: Annotated[int, msgspec.Meta(ge=1, le=255)]
    sample_rate: Rate
    width: Size
    height: Size
    input_width: Size
    input_height: Size
    input_rate: Rate
    audio_codec: Name
    video_codec: Name
    model: str
    resume_token: Secret | None = None
    resumed: bool = False


class TextDelta(Message, frozen=True):
    """A piece of what the agent says, heard while `unit` is played."""

    text: str
    unit: Count


class Heard(Message, frozen=True):
    """What the user was understood to ask for in `unit`: a short name in snake_case, for people too."""

    request: Name
    unit: Count


class Interrupted(Message, frozen=True):
    """Media older than `epoch` is void; `heard_pts` is the position up to which the user heard the agent."""

    epoch: Epoch
    heard_pts: Count


class AgentState(Message, frozen=True):
    """Whether the agent listens or speaks."""

    state: Annotated[str, msgspec.Meta(pattern="^(listening|speaking)$")]


class Metrics(Message, frozen=True):
    """Where the time goes: medians of each stage and counts, of all sessions since the server started."""

    stages_ms: dict[str, float]
    model_side_ms: float
    loop_ms: float
    late: Count = 0
    emitted: Count = 0
    dropped: Count = 0


class Warning(Message, frozen=True):  # noqa: A001 - the wire name is "warning"
    """Something went wrong, the session goes on. `code` is stable, `message` is for people."""

    code: Name
    message: str


class Error(Message, frozen=True):
    """Something went wrong; when `fatal` a close follows. `code` is stable, `message` is for people."""

    code: Name
    message: str
    fatal: bool


# ---- both ways


class Ping(Message, frozen=True):
    """Asks for a pong; `sent_us` is the sender's own clock."""

    sent_us: Count


class Pong(Message, frozen=True):
    """Answer to a ping, `sent_us` given back unchanged."""

    sent_us: Count


class Bye(Message, frozen=True):
    """An orderly end, a close follows."""

    reason: str = ""


ClientMessage = Hello | Text | Interrupt | Pause | Resume | Ack | Ping | Pong | Bye
ServerMessage = (
    Queued | Ready | TextDelta | Heard | Interrupted | AgentState | Metrics | Warning | Error
    | Ping | Pong | Bye
)  # fmt: skip
ControlMessage = ClientMessage | ServerMessage


class _Envelope(msgspec.Struct):
    type: str


_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(_Envelope)
_decoder: msgspec.json.Decoder[ControlMessage] = msgspec.json.Decoder(ControlMessage)
_types = frozenset(_type_name(message.__name__) for message in get_args(ControlMessage))


def encode_control(message: ControlMessage) -> str:
    """One control message as the text of a WebSocket text frame."""
    return _encoder.encode(message).decode()


def decode_control(text: str) -> ControlMessage | Close | None:
    """Read the text of a text frame. Never raises.

    Returns the message; None for a type that this version does not know (to be ignored); a Close for
    text that is too long, no JSON object with a "type", or a known type with missing or wrong fields.
    """
    if len(text) > MAX_CONTROL_BYTES:  # characters, a lower bound of its bytes and free to know
        return fault(CloseCode.TOO_BIG, f"control message over {MAX_CONTROL_BYTES} bytes")
    kind = ""
    try:
        kind = _envelope.decode(text).type
        return _decoder.decode(text) if kind in _types else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        where = f"{kind[:32]}: " if kind else "control message: "
        return fault(CloseCode.INVALID_DATA, where + str(error))

"""Both ends of a session as state machines without I/O: what arrived in, what to do out.

    Server: HELLO ──hello──► QUEUED ──send(Ready)──► READY ──bye, fault──► CLOSED
    Client: HELLO ──hello()──► QUEUED ──ready──► READY ──bye, fault──► CLOSED

`receive` takes one frame's str or bytes and returns events in the order in which they are to be handled:
a control message or MediaUnit that arrived, `Send` (a text frame), `Lost` (what a slow client won't get) or
`Close` (end the connection; the state is CLOSED by then and nothing more is returned).
"""

import dataclasses
import enum
import hmac

from protocol import messages as m
from protocol.errors import Close, CloseCode, fault
from protocol.media import (
    AudioEncoding,
    MediaFlags,
    MediaKind,
    MediaUnit,
    VideoEncoding,
    decode_media,
    encode_media,
)
from protocol.outgoing import Lost, OutgoingLimits, OutgoingQueue


class State(enum.Enum):
    """Where a session stands, seen from either end."""

    HELLO = "hello"
    QUEUED = "queued"
    READY = "ready"
    CLOSED = "closed"


@dataclasses.dataclass(frozen=True, slots=True)
class Send:
    """Send this text frame."""

    data: str


Event = m.ControlMessage | MediaUnit | Send | Close | Lost


class _Protocol:
    """What both ends share: decoding, pings, an orderly end."""

    def __init__(self) -> None:
        self.state = State.HELLO
        self.epoch = 0

    def receive(self, data: str | bytes) -> list[Event]:
        """Digest one WebSocket message. Never raises for what a peer sent."""
        if self.state is State.CLOSED:
            return []
        what = m.decode_control(data) if isinstance(data, str) else decode_media(data)
        match what:
            case None:
                return []
            case Close():
                return self._close(what)
            case MediaUnit():
                return self._on_media(what)
        return self._on_message(what)

    def _on_message(self, message: m.ControlMessage) -> list[Event]:
        match message:
            case m.Ping(sent_us=sent_us):
                return [Send(m.encode_control(m.Pong(sent_us=sent_us)))]
            case m.Pong():
                return [message]
            case m.Bye():
                return [message, *self.close(CloseCode.NORMAL, message.reason)]
        return self._on_control(message)

    def close(self, code: CloseCode, reason: str) -> list[Event]:
        """End the session from this side: one `Close`, or nothing when it has ended already."""
        return self._close(fault(code, reason))

    def _close(self, what: Close) -> list[Event]:
        if self.state is State.CLOSED:
            return []
        self.state = State.CLOSED
        return [what]

    def _unexpected(self, message: m.ControlMessage) -> list[Event]:
        name = type(message).__name__
        return self.close(CloseCode.PROTOCOL_ERROR, f"{name} is not expected while {self.state.value}")

    def _on_control(self, message: m.ControlMessage) -> list[Event]:
        raise NotImplementedError

    def _on_media(self, unit: MediaUnit) -> list[Event]:
        raise NotImplementedError


class ServerProtocol(_Protocol):
    """The Thinker's end of one connection.

    Args:
        token: what every hello must bring, or None when the server is open.
        limits: of the queue towards the client.
    """

    def __init__(self, *, token: str | None = None, limits: OutgoingLimits | None = None) -> None:
        super().__init__()
        self._token = token
        self._last_user_unit = -1
        self.outgoing = OutgoingQueue(limits or OutgoingLimits())
        self.paused = False

    def send(self, message: m.ServerMessage) -> str:
        """Text frame for a message of the server; `Ready`, `Interrupted` and `Bye` move the state along."""
        match message:
            case m.Ready():
                assert self.state is State.QUEUED, f"ready while {self.state.value}"
                self.state = State.READY
            case m.Interrupted(epoch=epoch):
                self.epoch = epoch
                self.outgoing.clear(MediaFlags.INTERRUPTED)
            case m.Bye():
                self.state = State.CLOSED
        return m.encode_control(message)

    def offer(self, unit: MediaUnit) -> list[Event]:
        """Queue a unit of the agent. Returns what is `Lost`, and a `Close` (1013) when it is too much.

        Units older than the epoch are dropped, and so is everything while the session is paused or not ready.
        """
        if self.state is not State.READY or self.paused or unit.epoch < self.epoch:
            return []
        lost = self.outgoing.offer(unit)
        events: list[Event] = [] if lost is None else [lost]
        if self.outgoing.too_slow:
            events += self.close(CloseCode.TRY_AGAIN_LATER, "the connection is too slow for this session")
        return events

    def next_media(self) -> bytes | None:
        """The next binary frame to send; call until None after `offer` and after every received ack."""
        unit = self.outgoing.pop() if self.state is State.READY else None
        return None if unit is None else encode_media(unit)

    def _on_control(self, message: m.ControlMessage) -> list[Event]:
        match self.state, message:
            case State.HELLO, m.Hello():
                return self._on_hello(message)
            case State.READY, m.Ack(unit=unit):
                self.outgoing.ack(unit)
            case State.READY, m.Pause() | m.Resume():
                self.paused = isinstance(message, m.Pause)
                if self.paused:
                    self.outgoing.clear(MediaFlags.DISCONTINUITY)
            case State.READY, m.Text() | m.Interrupt():
                pass
            case _:
                return self._unexpected(message)
        return [message]

    def _on_hello(self, hello: m.Hello) -> list[Event]:
        if hello.version != m.VERSION:
            return self.close(
                CloseCode.VERSION_MISMATCH, f"version {hello.version}, this server speaks {m.VERSION}"
            )
        if self._token is not None and not hmac.compare_digest(
            (hello.token or "").encode("utf-8", "replace"), self._token.encode()
        ):
            return self.close(CloseCode.UNAUTHORISED, "the token is missing or wrong")
        if "pcm16" not in hello.audio_codecs or "jpeg" not in hello.video_codecs:
            return self.close(CloseCode.UNSUPPORTED, "this server speaks pcm16 sound and jpeg pictures")
        self.state = State.QUEUED
        return [hello]

    def _on_media(self, unit: MediaUnit) -> list[Event]:
        if self.state is State.HELLO or unit.kind is not MediaKind.USER:
            return self.close(CloseCode.PROTOCOL_ERROR, "only user media is expected, and only after hello")
        if unit.audio_codec not in {AudioEncoding.PCM16, AudioEncoding.NONE}:
            return self.close(CloseCode.UNSUPPORTED, f"{unit.audio_codec.name} was not negotiated")
        if unit.video_codec not in {VideoEncoding.JPEG, VideoEncoding.NONE}:
            return self.close(CloseCode.UNSUPPORTED, f"{unit.video_codec.name} was not negotiated")
        if self.state is not State.READY or self.paused or unit.unit <= self._last_user_unit:
            return []
        self._last_user_unit = unit.unit
        return [unit]


class ClientProtocol(_Protocol):
    """A client's end of one connection; `ready` is the server's message, once it came."""

    def __init__(self, hello: m.Hello) -> None:
        super().__init__()
        self._hello = hello
        self._next_unit = 0
        self.ready: m.Ready | None = None
        self.stale_units = 0

    def hello(self) -> str:
        assert self.state is State.HELLO, f"hello while {self.state.value}"
        self.state = State.QUEUED
        return m.encode_control(self._hello)

    def send(self, message: m.ClientMessage) -> str:
        """Text frame for a message of the client; after `Bye` the session is closed."""
        if isinstance(message, m.Bye):
            self.state = State.CLOSED
        return m.encode_control(message)

    def send_unit(self, audio: bytes, frames: tuple[bytes, ...]) -> bytes:
        """Binary frame for the user's next unit: PCM16 mono at `audio_rate` of the hello, JPEG frames.

        Either may be empty. Numbers and time stamps are kept here, so call it once for every unit of time.

        Raises:
            ValueError: when the unit is over the size limit.
        """
        assert self.ready is not None, "a unit before ready"
        unit = MediaUnit(
            kind=MediaKind.USER,
            epoch=self.epoch,
            unit=self._next_unit,
            pts_us=self._next_unit * self.ready.unit_ms * 1000,
            audio_codec=AudioEncoding.PCM16 if audio else AudioEncoding.NONE,
            video_codec=VideoEncoding.JPEG if frames else VideoEncoding.NONE,
            audio=audio,
            frames=frames,
        )
        self._next_unit += 1
        return encode_media(unit)

    def skip_units(self, count: int) -> None:
        """Media time went on without the user's media (a stall): the next unit is `count` later."""
        self._next_unit += count

    def _on_control(self, message: m.ControlMessage) -> list[Event]:
        match self.state, message:
            case State.QUEUED, m.Ready():
                self.ready = message
                self.state = State.READY
            case State.READY, m.Interrupted(epoch=epoch):
                self.epoch = max(self.epoch, epoch)
            case State.QUEUED, m.Queued() | m.Warning() | m.Error():
                pass
            case State.READY, m.Queued() | m.Ready():
                return self._unexpected(message)
            case State.READY, _ if isinstance(message, m.ServerMessage):
                pass
            case _:
                return self._unexpected(message)
        return [message]

    def _on_media(self, unit: MediaUnit) -> list[Event]:
        if self.state is not State.READY or unit.kind is not MediaKind.AGENT:
            return self.close(CloseCode.PROTOCOL_ERROR, "only agent media is expected, and only after ready")
        if unit.epoch < self.epoch:
            self.stale_units += 1
            return []
        self.epoch = unit.epoch
        return [unit]

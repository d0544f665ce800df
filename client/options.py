"""What a client is told, and what it tells at the end."""

import dataclasses
import math
from pathlib import Path

from client.errors import UsageError
from client.media import FileUser
from client.recorder import check_target
from client.session import session_url
from protocol import messages as m


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ClientOptions:
    """What the client is to do.

    Attributes:
        url: `HOST:PORT` or any address that `session_url` takes.
        token: the server's secret.
        input: a media file that plays the user's part; then no camera and microphone are opened.
        texts: what the user types when the session starts, in order.
        seconds: of the session; None: until the input has ended, or until stopped.
        record: MP4 to write.
        record_both: put the user into it too.
        camera: number or address of a camera, None for none.
        microphone: name or number, `default`, None for none.
        speaker: name or number, `default`, None for none.
        window: show the agent in a window.
    """

    url: str
    token: str | None = None
    input: Path | None = None
    texts: tuple[str, ...] = ()
    seconds: float | None = None
    record: Path | None = None
    record_both: bool = False
    camera: str | None = None
    microphone: str | None = None
    speaker: str | None = None
    window: bool = False

    def __post_init__(self) -> None:
        session_url(self.url)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"seconds must be above 0, is {self.seconds}")
        if self.record_both and self.record is None:
            raise UsageError("--record-both needs --record FILE, to write to")
        for text in self.texts:
            if not 0 < len(text) <= m.MAX_TEXT_CHARS:
                raise UsageError(f"text must have 1 to {m.MAX_TEXT_CHARS} characters, has {len(text)}")


@dataclasses.dataclass(kw_only=True, slots=True)
class ClientSummary:
    """What the client saw of the session; all of it can go into a JSON report.

    Attributes:
        ended: why: `done`, `stopped`, `window closed`, or what the server said.
        units_sent: of the user.
        units: of the agent, received and valid.
        gaps: units of the agent that never came.
        stale: units of the agent that an interruption had made void.
        skipped: units thrown away because too much waited.
        underruns: how often the sound ran dry.
        av_skew_ms: `p50` and `max` of |media time of a painted picture − media time heard|.
        first_unit_s: from connecting to the agent's first unit.
        delay_s: how much later than the user's first unit the agent's first one is heard: what an answer
            that comes at once would take, and where the recording has the agent.
        said: the agent's whole text; `heard`: the part whose sound was played.
        understood: what the agent took for requests, and in which units.
        conversation: `who` ("user", "agent"), `text` and `unit` of everything said, in order: what was typed,
            what was understood, and what the agent said, a turn at a time.
        record: the file that was written.
    """

    session_id: str | None = None
    model: str | None = None
    ended: str = "stopped"
    seconds: float = 0.0
    units_sent: int = 0
    units: int = 0
    gaps: int = 0
    stale: int = 0
    skipped: int = 0
    underruns: int = 0
    av_skew_ms: dict[str, float] | None = None
    first_unit_s: float | None = None
    delay_s: float | None = None
    said: str = ""
    heard: str = ""
    understood: list[dict[str, str | int]] = dataclasses.field(default_factory=list)
    conversation: list[dict[str, str | int]] = dataclasses.field(default_factory=list)
    record: str | None = None


def check_options(options: ClientOptions) -> None:
    """See, before anything is started, that the input can be read and the recording written.

    Raises:
        UsageError: with the reason (MediaError is one).
    """
    if options.record is not None:
        check_target(options.record)
    if options.input is not None:
        FileUser(options.input).close()

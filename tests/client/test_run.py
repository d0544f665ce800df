"""Whole sessions against a small server that speaks through the server's end of the protocol."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import av
import msgspec
import numpy as np
import pytest
import simplejpeg
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from client.errors import ConnectionFailed, MediaError, Unauthorised, UsageError
from client.options import ClientOptions, ClientSummary, check_options
from client.run import place_in_queue, run_client
from protocol import messages as m
from protocol.errors import Close
from protocol.media import MediaKind, MediaUnit
from protocol.session import Send, ServerProtocol

MakeMedia = Callable[..., Path]

READY = m.Ready(
    session_id="s1",
    resume_token="r1",
    unit_ms=160,
    fps=25,
    frames_per_unit=4,
    sample_rate=16_000,
    width=64,
    height=64,
    input_width=32,
    input_height=24,
    input_rate=16_000,
    audio_codec="pcm16",
    video_codec="jpeg",
    model="echo",
)


@dataclasses.dataclass
class EchoThinker:
    """Answers each unit of the user with one of its own: the user's sound, and grey frames that count."""

    token: str | None = None
    missing: frozenset[int] = frozenset()
    ends_after: int | None = None
    cuts_after: int | None = None
    unit_ms: int = 160
    per_unit: int = 1
    url: str = ""
    hellos: list[m.Hello] = dataclasses.field(default_factory=list)
    texts: list[str] = dataclasses.field(default_factory=list)
    acks: list[m.Ack] = dataclasses.field(default_factory=list)
    user: list[MediaUnit] = dataclasses.field(default_factory=list)
    byes: list[str] = dataclasses.field(default_factory=list)
    talking: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def __call__(self, connection: ServerConnection) -> None:
        protocol = ServerProtocol(token=self.token)
        with contextlib.suppress(ConnectionClosed):
            async for data in connection:
                for event in protocol.receive(data):
                    await self._handle(connection, protocol, event)
                while (media := protocol.next_media()) is not None:
                    await connection.send(media)
        self.over.set()

    async def _handle(self, connection: ServerConnection, protocol: ServerProtocol, event: object) -> None:
        match event:
            case Send(data=text):
                await connection.send(text)
            case Close(code=code, reason=reason):
                await connection.close(code, reason)
            case m.Hello():
                self.hellos.append(event)
                await connection.send(protocol.send(msgspec.structs.replace(READY, unit_ms=self.unit_ms)))
            case m.Text(text=text):
                self.texts.append(text)
            case m.Ack():
                self.acks.append(event)
                if len(self.acks) == 3:
                    self.talking.set()
            case m.Bye(reason=reason):
                self.byes.append(reason)
            case MediaUnit():
                self.user.append(event)
                await self._answer(connection, protocol, event)

    async def _answer(self, connection: ServerConnection, protocol: ServerProtocol, heard: MediaUnit) -> None:
        unit = heard.unit
        if unit in self.missing:
            return
        if unit == self.cuts_after:
            connection.transport.abort()
            return
        if unit == 2:
            await connection.send(protocol.send(m.Heard(request="count_five", unit=2)))
        if unit == 4:
            await connection.send(protocol.send(m.AgentState(state="listening")))
        if unit in (3, 5):
            text = "five " if unit == 3 else "six "
            await connection.send(protocol.send(m.TextDelta(text=text, unit=unit)))
        if unit == 1:
            await connection.send(protocol.send(m.TextDelta(text="hi ", unit=1)))
            await connection.send(protocol.send(m.TextDelta(text="never heard", unit=1000)))
        frames = tuple(
            simplejpeg.encode_jpeg(np.full((64, 64, 3), 16 + 8 * ((unit * 4 + index) % 28), np.uint8))
            for index in range(4)
        )
        for number in range(unit * self.per_unit, (unit + 1) * self.per_unit):
            pts_us = number * 160_000
            protocol.offer(
                MediaUnit(kind=MediaKind.AGENT, unit=number, pts_us=pts_us, audio=heard.audio, frames=frames)
            )
        if unit == self.ends_after:
            while (media := protocol.next_media()) is not None:
                await connection.send(media)
            await connection.send(protocol.send(m.Bye(reason="enough")))
            await connection.close()


@contextlib.asynccontextmanager
async def serving(thinker: EchoThinker) -> AsyncIterator[EchoThinker]:
    async with serve(thinker, "127.0.0.1", 0, subprotocols=[m.SUBPROTOCOL]) as listening:
        thinker.url = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield thinker


def names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def tracks(path: Path) -> tuple[int, int]:
    """Pictures and samples of a recording."""
    with av.open(str(path)) as file:
        pictures = sum(1 for _ in file.decode(video=0))
    with av.open(str(path)) as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
    return pictures, samples


def lead(summary: ClientSummary) -> int:
    """Frames of the recording before the agent is heard: a unit and the head start of playing, at least."""
    assert summary.delay_s is not None
    frames = summary.delay_s * 25
    assert frames >= 6
    return round(frames)


async def test_a_file_talks_and_the_answer_is_recorded(make_media: MakeMedia, tmp_path: Path) -> None:
    heard: list[str] = []
    understood: list[str] = []
    async with serving(EchoThinker()) as thinker:
        options = ClientOptions(
            url=thinker.url,
            input=make_media("user.mp4", seconds=1.0),
            texts=("hello", "and good day"),
            seconds=1.92,
            record=tmp_path / "out.mp4",
        )
        summary = await run_client(options, on_heard=heard.append, on_understood=understood.append)
        await thinker.over.wait()
    assert thinker.hellos[0].camera
    assert thinker.hellos[0].microphone
    assert thinker.texts == ["hello", "and good day"]
    assert [unit.unit for unit in thinker.user] == list(range(12))
    assert {len(unit.audio) for unit in thinker.user} == {5120}
    assert simplejpeg.decode_jpeg(thinker.user[0].frames[3]).shape == (24, 32, 3)
    assert len(thinker.user[11].frames) == 4  # the file is over, its last frame goes on
    assert not any(thinker.user[11].audio)
    assert [ack.unit for ack in thinker.acks] == list(range(12))
    assert thinker.byes == ["client is done"]
    assert (summary.ended, summary.units_sent, summary.units, summary.gaps) == ("done", 12, 12, 0)
    assert summary.record == str(tmp_path / "out.mp4")
    assert (summary.said, summary.heard) == ("hi never heardfive six ", "hi ")
    assert "".join(heard) == "hi "
    assert understood == ["count_five"]
    assert summary.understood == [{"request": "count_five", "unit": 2}]
    assert summary.conversation == [
        {"who": "user", "text": "hello", "unit": 0},
        {"who": "user", "text": "and good day", "unit": 0},
        {"who": "agent", "text": "hi never heard", "unit": 1},
        {"who": "user", "text": "count_five", "unit": 2},
        {"who": "agent", "text": "five", "unit": 3},
        {"who": "agent", "text": "six", "unit": 5},
    ]
    assert summary.first_unit_s is not None
    assert summary.av_skew_ms is not None
    pictures, samples = tracks(tmp_path / "out.mp4")
    assert pictures == 48 + lead(summary)
    assert abs(samples - 640 * pictures) <= 2560


async def test_the_user_s_part_goes_out_in_real_time(make_media: MakeMedia) -> None:
    loop = asyncio.get_running_loop()
    async with serving(EchoThinker()) as thinker:
        began = loop.time()
        await run_client(ClientOptions(url=thinker.url, input=make_media("a.mp4", seconds=2.0), seconds=1.6))
    assert loop.time() - began >= 1.6


async def test_without_seconds_the_session_is_as_long_as_the_file(make_media: MakeMedia) -> None:
    async with serving(EchoThinker()) as thinker:
        path = make_media("a.wav", seconds=0.9, size=None, audio_codec="pcm_s16le")
        summary = await run_client(ClientOptions(url=thinker.url, input=path))
    assert summary.units_sent in {6, 7}
    assert not thinker.hellos[0].camera
    assert {unit.frames for unit in thinker.user} == {()}


async def test_missing_units_are_counted_and_filled(make_media: MakeMedia, tmp_path: Path) -> None:
    async with serving(EchoThinker(missing=frozenset({3, 4}))) as thinker:
        summary = await run_client(ClientOptions(url=thinker.url, seconds=1.28, record=tmp_path / "out.mp4"))
    assert (summary.units, summary.gaps, summary.units_sent) == (6, 2, 8)
    assert tracks(tmp_path / "out.mp4")[0] == 32 + lead(summary)


async def test_the_recording_is_as_long_as_asked_though_the_agent_goes_on(tmp_path: Path) -> None:
    async with serving(EchoThinker(per_unit=2)) as thinker:
        summary = await run_client(ClientOptions(url=thinker.url, seconds=0.8, record=tmp_path / "out.mp4"))
    assert (summary.units_sent, summary.units) == (5, 5)
    assert tracks(tmp_path / "out.mp4")[0] == 20 + lead(summary)


async def test_both_sides_are_recorded(make_media: MakeMedia, tmp_path: Path) -> None:
    async with serving(EchoThinker()) as thinker:
        summary = await run_client(
            ClientOptions(
                url=thinker.url,
                input=make_media("a.mp4"),
                seconds=0.96,
                record=tmp_path / "both.mp4",
                record_both=True,
            )
        )
    assert summary.record is not None
    with av.open(summary.record) as file:
        assert (file.streams.video[0].width, file.streams.video[0].height) == (128, 64)
    assert simplejpeg.decode_jpeg(thinker.user[0].frames[0]).shape == (24, 32, 3)


async def test_stopping_sends_bye_and_completes_the_recording(tmp_path: Path) -> None:
    stop = asyncio.Event()
    async with serving(EchoThinker()) as thinker:
        running = asyncio.create_task(
            run_client(ClientOptions(url=thinker.url, record=tmp_path / "out.mp4"), stop=stop)
        )
        await thinker.talking.wait()
        stop.set()
        summary = await running
        await thinker.over.wait()
    assert summary.ended == "stopped"
    assert thinker.byes == ["client is done"]
    assert tracks(tmp_path / "out.mp4")[0] == 4 * summary.units + lead(summary)


async def test_stopping_in_the_queue(tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def full(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(m.encode_control(m.Queued(position=1)))
        stop.set()
        await connection.wait_closed()

    async with serve(full, "127.0.0.1", 0, subprotocols=[m.SUBPROTOCOL]) as listening:
        url = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        summary = await run_client(ClientOptions(url=url, record=tmp_path / "out.mp4"), stop=stop)
    assert summary.ended == "stopped"
    assert summary.session_id is None
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("position", "eta_s", "words"),
    [
        (1, None, "next"),
        (1, 0.0, "next, any moment now"),
        (2, 39.2, "2nd in line, about 40 s"),
        (3, 89.0, "3rd in line, about 89 s"),
        (11, 100.0, "11th in line, about 2 min"),
        (22, None, "22nd in line"),
    ],
)
def test_the_place_in_the_queue_in_words(position: int, eta_s: float | None, words: str) -> None:
    assert place_in_queue(m.Queued(position=position, eta_s=eta_s)) == words


async def test_the_server_may_end_the_session(tmp_path: Path) -> None:
    async with serving(EchoThinker(ends_after=2)) as thinker:
        summary = await run_client(ClientOptions(url=thinker.url, record=tmp_path / "out.mp4"))
    assert summary.ended == "the server ended the session"
    assert summary.units == 3
    assert tracks(tmp_path / "out.mp4")[0] == 12 + lead(summary)


async def test_a_lost_connection_is_an_error_and_the_recording_is_kept(tmp_path: Path) -> None:
    async with serving(EchoThinker(cuts_after=3)) as thinker:
        with pytest.raises(ConnectionFailed, match="the connection was lost"):
            await run_client(ClientOptions(url=thinker.url, record=tmp_path / "out.mp4"))
    assert tracks(tmp_path / "out.mp4")[0] >= 12 + 6
    assert names(tmp_path) == ["out.mp4"]


async def test_a_connection_lost_before_the_first_unit_leaves_no_file(tmp_path: Path) -> None:
    async with serving(EchoThinker(cuts_after=0)) as thinker:
        with pytest.raises(ConnectionFailed):
            await run_client(ClientOptions(url=thinker.url, record=tmp_path / "out.mp4"))
    assert names(tmp_path) == []


async def test_the_token(tmp_path: Path) -> None:
    async with serving(EchoThinker(token="open sesame")) as thinker:
        with pytest.raises(Unauthorised, match="--token"):
            await run_client(ClientOptions(url=thinker.url, seconds=0.16))
        summary = await run_client(ClientOptions(url=thinker.url, seconds=0.16, token="open sesame"))
    assert summary.ended == "done"


async def test_a_server_with_other_units_is_refused() -> None:
    async with serving(EchoThinker(unit_ms=80)) as thinker:
        with pytest.raises(ConnectionFailed, match="units of 80 ms"):
            await run_client(ClientOptions(url=thinker.url, seconds=0.16))


async def test_a_broken_input_is_refused_before_connecting(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no media")
    options = ClientOptions(url="127.0.0.1:1", input=tmp_path / "broken.mp4")
    with pytest.raises(MediaError):
        check_options(options)
    with pytest.raises(MediaError):
        await run_client(options)


def test_options_are_checked() -> None:
    for wrong in (
        {"seconds": 0.0},
        {"seconds": float("nan")},
        {"record_both": True},
        {"texts": ("",)},
        {"texts": ("x" * (m.MAX_TEXT_CHARS + 1),)},
        {"url": "nonsense://x"},
    ):
        with pytest.raises(UsageError):
            ClientOptions(**{"url": "localhost:1", **wrong})
    with pytest.raises(UsageError, match="no folder"):
        check_options(ClientOptions(url="localhost:1", record=Path("/nowhere/at/all/out.mp4")))

"""A session from `ready` to its end: the user's part goes out, the agent's comes in.

source ─► _speak ─► session ─► _listen ─► player: loudspeaker, window, transcript
             └────► recording ◄────┘
"""

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Executor
from fractions import Fraction

import numpy as np

from client.errors import ConnectionFailed
from client.media import UNIT_S, MediaSource, UserPart
from client.mp4 import RecordFormat
from client.options import ClientOptions, ClientSummary
from client.pictures import Picture, encode_jpeg, resize
from client.player import Player
from client.recorder import Recorder
from client.recording import RecordingThread
from client.session import ClientSession
from protocol import messages as m
from protocol.media import MediaUnit

log = logging.getLogger(__name__)

POLL_S = 0.02
MAX_LAG_S = 4 * UNIT_S  # further behind than this the user's time jumps instead of being caught up
LAST_ANSWER_S = 1.0  # what is said last is waited for, at most this long
DRAIN_S = 1.0


class SessionLoop:
    """A session from `ready` to its end."""

    def __init__(
        self,
        options: ClientOptions,
        session: ClientSession,
        ready: m.Ready,
        *,
        source: MediaSource,
        player: Player,
        worker: Executor,
        began: float,
        on_understood: Callable[[str], None],
    ) -> None:
        if ready.unit_ms != round(UNIT_S * 1000):
            raise ConnectionFailed(f"the server works in units of {ready.unit_ms} ms, this client in 160 ms")
        self._options = options
        self._session = session
        self._ready = ready
        self._source = source
        self._player = player
        self._worker = worker
        self._began = began
        self._on_understood = on_understood
        self._loop = asyncio.get_running_loop()
        self._jpegs: dict[int, tuple[Picture, bytes]] = {}
        self._user_began = self._loop.time()
        self._last_unit: int | None = None
        self._turn_over = True
        self._wanted = math.inf  # units of the agent that belong to this session
        if options.seconds is not None:
            self._wanted = math.ceil(options.seconds / UNIT_S - 1e-6)
        self._summary = ClientSummary(session_id=ready.session_id, model=ready.model)
        self._recording = _start_recording(options, ready)

    async def run(self, stop: asyncio.Event) -> ClientSummary:
        """Until the user's part is over, the window is closed, the server ends it or `stop` is set."""
        began = self._loop.time()
        try:
            self._summary.ended = await self._first_to_end(stop)
            await self._session.close("client is done")
        finally:
            if self._recording is not None and await asyncio.to_thread(self._recording.finish):
                self._summary.record = str(self._options.record)
        self._summary.seconds = round(self._loop.time() - began, 3)
        self._summary.stale = self._session.stale_units
        self._player.fill(self._summary)
        return self._summary

    async def _first_to_end(self, stop: asyncio.Event) -> str:
        """Do everything at once; returns why it ended."""
        reasons = {
            asyncio.ensure_future(stop.wait()): "stopped",
            asyncio.ensure_future(self._player.play()): "window closed",
            asyncio.ensure_future(self._speak()): "done",
            asyncio.ensure_future(self._listen()): "the server ended the session",
        }
        try:
            done, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
            return next(why for part, why in reasons.items() if part in done)
        finally:
            for part in reasons:
                part.cancel()
            await asyncio.gather(*reasons, return_exceptions=True)

    async def _speak(self) -> None:
        """Send the user's part in real time; ends when it is over and answered."""
        wanted = self._ready
        if self._options.record_both:  # the recording shows the user as large as the agent
            self._source.begin(wanted.width, wanted.height)
        else:
            self._source.begin(wanted.input_width, wanted.input_height)
        for text in self._options.texts:
            await self._session.send(m.Text(text=text))
            self._note("user", text, self._summary.units_sent)
        start = self._user_began = self._loop.time()
        while not self._said_all():
            part, frames = await self._loop.run_in_executor(self._worker, self._next_part)
            if self._source.live and not self._summary.units_sent:
                self._user_began = self._loop.time() - UNIT_S
            if not self._source.live:
                start += self._jump(self._loop.time() - start - (self._summary.units_sent + 1) * UNIT_S)
                due = start + (self._summary.units_sent + 1) * UNIT_S
                await asyncio.sleep(due - self._loop.time())
            await self._session.send_unit(part.pcm.astype("<i2").tobytes(), frames)
            self._summary.units_sent += 1
            if self._recording is not None:
                self._recording.put(part)
        self._wanted = self._summary.units_sent
        await _until(self._answered, within_s=LAST_ANSWER_S)
        await _until(lambda: self._player.empty, within_s=DRAIN_S)

    def _said_all(self) -> bool:
        if self._options.seconds is None:
            return self._source.ended
        return self._summary.units_sent >= self._wanted

    def _answered(self) -> bool:
        return self._summary.units + self._summary.gaps >= self._wanted

    def _next_part(self) -> tuple[UserPart, tuple[bytes, ...]]:
        """On the worker: decode or record, scale, code."""
        part = self._source.take()
        known, self._jpegs = self._jpegs, {}
        coded = []
        for picture in part.frames:
            if id(picture) not in self._jpegs:  # slow cameras and stills give the same array again
                small = resize(picture, self._ready.input_width, self._ready.input_height)
                self._jpegs[id(picture)] = known.get(id(picture)) or (picture, encode_jpeg(small))
            coded.append(self._jpegs[id(picture)][1])
        return part, tuple(coded)

    def _jump(self, lag_s: float) -> float:
        """After a long stall, skip the units whose time has gone by; returns how far the deadlines move."""
        if lag_s <= MAX_LAG_S:
            return 0.0
        lost = int(lag_s / UNIT_S)
        self._session.skip_units(lost)
        if self._recording is not None:
            for _ in range(lost):
                self._recording.put(UserPart(pcm=np.zeros(0, np.int16), frames=[]))
        log.warning("%d units behind: the user's time jumps", lost)
        return lost * UNIT_S

    async def _listen(self) -> None:
        """Take in what the server sends until it ends the session."""
        async for message in self._session.incoming():
            match message:
                case MediaUnit():
                    await self._session.send(self._take_in(message))
                case m.TextDelta(text=text, unit=unit):
                    self._player.say(text, unit)
                    self._note("agent", text, unit)
                case m.Heard(request=request, unit=unit):
                    self._summary.understood.append({"request": request, "unit": unit})
                    self._on_understood(request)
                    self._note("user", request, unit)
                case m.AgentState(state=state):
                    self._turn_over = self._turn_over or state == "listening"
                case m.Interrupted():
                    self._player.flush()
                case m.Bye(reason=reason):
                    log.info("the server ends the session%s", f": {reason}" if reason else "")
        await _until(lambda: self._player.empty, within_s=DRAIN_S)

    def _note(self, who: str, text: str, unit: int) -> None:
        conversation, text = self._summary.conversation, text.strip()
        if who == "agent" and not self._turn_over:
            conversation[-1]["text"] = f"{conversation[-1]['text']} {text}"
        else:
            conversation.append({"who": who, "text": text, "unit": unit})
        self._turn_over = who == "user"

    def _take_in(self, unit: MediaUnit) -> m.Ack:
        if self._summary.first_unit_s is None:
            self._summary.first_unit_s = round(self._loop.time() - self._began, 3)
        if self._summary.delay_s is None:
            self._begin(unit)
        if self._answered():  # the agent goes on for as long as the connection stands
            return m.Ack(unit=unit.unit)
        if self._last_unit is not None:
            self._summary.gaps += max(0, unit.unit - self._last_unit - 1)
        self._last_unit = unit.unit
        self._summary.units += 1
        if self._recording is not None:
            self._recording.put(unit)
        return self._player.push(unit)

    def _begin(self, first: MediaUnit) -> None:
        """The agent's first unit has come: fix the place of its units on the user's timeline."""
        heard_at = self._loop.time() + self._player.head_start_s - first.unit * UNIT_S
        delay_s = max(0.0, heard_at - self._user_began)
        self._summary.delay_s = round(delay_s, 3)
        if self._recording is not None:
            self._recording.begin(delay_s)


async def _until(condition: Callable[[], bool], *, within_s: float) -> None:
    for _ in range(round(within_s / POLL_S)):
        if condition():
            return
        await asyncio.sleep(POLL_S)


def _start_recording(options: ClientOptions, ready: m.Ready) -> RecordingThread | None:
    if options.record is None:
        return None
    form = RecordFormat(
        width=ready.width,
        height=ready.height,
        fps=Fraction(ready.frames_per_unit * 1000, ready.unit_ms),
        frames_per_unit=ready.frames_per_unit,
        sample_rate=ready.sample_rate,
        samples_per_unit=ready.sample_rate * ready.unit_ms // 1000,
    )
    return RecordingThread(Recorder(options.record, form, both=options.record_both))

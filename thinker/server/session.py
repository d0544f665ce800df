"""One WebSocket connection, from hello to close.

The protocol's state machine decides; this moves what it decides on. Five tasks live as long as the
connection, and the first to find a reason ends them all:

    read      socket → machine → inbox (text, interruptions) or the waiting user units
    convert   user units → media pool → inbox
    code      the engine's units → media pool → the machine's outgoing queue
    write     control messages, then media that the outgoing queue lets go → socket
    watch     pings, and ends a connection that says nothing

Only `write` waits for the client, and nothing waits for `write`: what it doesn't take, the outgoing queue
drops by its policy. User units that come faster than they can be converted are dropped too.
"""

import asyncio
import contextlib
import dataclasses
import logging
import math
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from starlette.websockets import WebSocket

from protocol import messages as m
from protocol.errors import CloseCode
from protocol.media import MediaUnit
from protocol.session import Close, Event, Send, ServerSession, State
from thinker.server.admission_queue import AdmissionQueue
from thinker.server.convert import MAX_SOUND_RATE, MIN_SOUND_RATE, UserConverter
from thinker.server.errors import PictureError
from thinker.server.inbox import Inbox
from thinker.server.limits import ClientLimits, LimitChecker
from thinker.server.metrics import ServerMetrics
from thinker.server.outbox import Outbox
from thinker.server.pumps import MediaDecoder, MediaEncoder
from thinker.units import AgentUnit, MediaSpec, SessionHandle

log = logging.getLogger(__name__)

SHOWN_OF_LINE = 60  # characters of a line of the user that are enough to know it by


class Session:
    """Serves one accepted connection; `run` returns when it is over.

    Args:
        socket: accepted with the protocol's subprotocol before `run`.
        spec: the media of the model.
        admission_queue: where it waits for a slot.
        pool: threads for media.
        metrics: the server's counters.
        token: what the hello must bring, or None.
        limits: of time and amount.
    """

    def __init__(
        self,
        socket: WebSocket,
        *,
        spec: MediaSpec,
        admission_queue: AdmissionQueue,
        pool: Executor,
        metrics: ServerMetrics,
        token: str | None,
        limits: ClientLimits,
    ) -> None:
        self.session_id = secrets.token_hex(8)
        self.inbox = Inbox(
            unit_samples=spec.input_unit_samples,
            frames=spec.frames_per_unit,
            height=spec.input_height,
            width=spec.input_width,
        )
        self._spec = spec
        self._lobby = admission_queue
        self._metrics = metrics
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._machine = ServerSession(token=token)
        self._wire = Outbox(
            socket,
            next_media=self._machine.next_media,
            metrics=metrics,
            max_messages=limits.waiting_messages,
        )
        self._over: asyncio.Future[Close] = self._loop.create_future()
        self._client_gone = False
        self._hello = m.Hello()
        self._played_pts = 0
        self._speaking = False
        self._user_pump = MediaDecoder(pool, waiting=limits.waiting_user_units, complain=self._on_bad_picture)
        self._agent_pump = MediaEncoder(pool, waiting=limits.waiting_agent_units, unit_ms=spec.unit_ms)
        self._conduct = LimitChecker(limits, now=self._loop.time())
        self._warned_at = -math.inf

    # ---- called by the server and the queue

    @property
    def over(self) -> bool:
        """Whether the end is decided; `run` returns soon."""
        return self._over.done()

    async def run(self) -> None:
        """Serve until either side ends it; the slot is free and the connection closed on return."""
        convert, code = self._user_pump.run(self._make_converter), self._agent_pump.run(self._offer)
        parts = (self._read(), convert, code, self._write(), self._watch())
        tasks = [asyncio.create_task(part) for part in parts]
        ends: list[asyncio.Future[Any]] = [self._over, *tasks]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._notice_crash(tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._lobby.leave(self)
            self._count_losses()
            await asyncio.gather(*tasks, return_exceptions=True)
        close = await self._over
        log.info("session %s is over: %d %r", self.session_id, close.code, close.reason)  # no forged lines
        self._metrics.closes.labels("gone" if self._client_gone else str(int(close.code))).inc()
        if not self._client_gone:
            await self._wire.close(close, within_s=self._limits.goodbye_s)

    def queued(self, position: int, eta_s: int | None) -> None:
        """The session is the `position`th of those that wait, for about so many seconds."""
        self._send(m.Queued(position=position, eta_s=eta_s))

    def seated(self, handle: SessionHandle) -> None:
        """The admission_queue has a slot for this session: it begins."""
        log.info("session %s begins as number %d", self.session_id, handle.session)
        about = dataclasses.asdict(self._spec)  # its fields are named as those of `ready`
        self._send(m.Ready(session_id=self.session_id, audio_codec="pcm16", video_codec="jpeg", **about))

    def failed(self, reason: str) -> None:
        """The engine can't go on with this session."""
        if not self.over:
            self._send(m.Error(code="engine-failed", message=reason, fatal=True))
            self.end(CloseCode.INTERNAL, reason)

    def end(self, code: CloseCode, reason: str) -> None:
        """End the session; the first reason counts."""
        self._handle_all(self._machine.close(code, reason))

    def show_metrics(self, metrics: m.Metrics) -> None:
        """Send the numbers of the last second, when the session has begun."""
        if self._machine.state is State.READY:
            self._send(metrics)

    # ---- called by the engine, on the model thread

    def on_unit(self, unit: AgentUnit) -> None:
        """Take over one unit of the agent."""
        self._call_soon(partial(self._take_agent_unit, unit))

    def on_end(self, reason: str) -> None:
        """The engine ended the session by itself."""
        self._call_soon(partial(self.failed, reason))

    def _call_soon(self, callback: Callable[[], None]) -> None:
        # At shutdown the loop may have closed under a unit that was on its way.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    # ---- the tasks

    async def _read(self) -> None:
        while not self.over:
            data = await self._wire.receive()
            if data is None:
                self._lost_client()
                return
            self._judge(self._conduct.heard(len(data), now=self._loop.time()))
            self._handle_all(self._machine.receive(data))
            self._wire.wake()  # an ack may have let media go

    async def _write(self) -> None:
        await self._wire.write()
        self._lost_client()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(self._limits.ping_every_s, self._limits.hello_s))
            greeted = self._machine.state is not State.HELLO
            self._judge(self._conduct.silence(greeted=greeted, now=self._loop.time()))
            if greeted and not self.over:
                self._send(m.Ping(sent_us=time.monotonic_ns() // 1000))

    def _judge(self, misconduct: Close | None) -> None:
        if misconduct is not None:
            self.end(misconduct.code, misconduct.reason)

    # ---- what arrives

    def _handle_all(self, events: list[Event]) -> None:
        for event in events:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Send():
                self._put(event.data)
            case Close() if not self.over:
                self._over.set_result(event)
            case MediaUnit():
                self._user_pump.put(event)
            case m.Hello():
                self._greet(event)
            case m.Text():
                if not self.inbox.push_text(event.text):
                    self._refuse(event.text, "too much text waits already")
            case m.Interrupt():
                self._send(m.Interrupted(epoch=self.inbox.interrupt(), heard_pts=self._played_pts))
            case m.Ack():
                self._played_pts = max(self._played_pts, event.played_pts)

    def _greet(self, hello: m.Hello) -> None:
        if not MIN_SOUND_RATE <= hello.audio_rate <= MAX_SOUND_RATE:
            limits = f"{MIN_SOUND_RATE} to {MAX_SOUND_RATE}"
            self.end(CloseCode.UNSUPPORTED, f"audio_rate {hello.audio_rate} is not within {limits}")
            return
        self._hello = hello
        for text in hello.texts:  # before a slot is taken, so that unit 0 sees them
            self.inbox.push_text(text)
        if not self._lobby.join(self):
            self.end(CloseCode.TRY_AGAIN_LATER, "too many clients wait already")

    def _take_agent_unit(self, unit: AgentUnit) -> None:
        """Words and state go out at once: they are small, and stay whole when a slow client loses media."""
        if unit.epoch < self._machine.epoch or self._machine.state is not State.READY:
            return
        decision = unit.decision
        if decision.speaking != self._speaking:
            self._speaking = decision.speaking
            self._send(m.AgentState(state="speaking" if decision.speaking else "listening"))
        if decision.warning:
            self._send(m.Warning(code="session", message=decision.warning))
        for line in decision.refused:
            self._refuse(line, "nothing in it can be spoken, or too much waits to be spoken")
        if self._machine.paused:
            return  # nobody will see or hear the unit: its words are not said either
        if decision.heard:
            self._send(m.Heard(request=decision.heard, unit=unit.unit))
        if decision.text:
            self._send(m.TextDelta(text=decision.text, unit=unit.unit))
        self._agent_pump.put(unit)

    def _refuse(self, line: str, why: str) -> None:
        """The user must know of every line that gets no answer."""
        self._metrics.refused_texts.inc()
        shown = line if len(line) <= SHOWN_OF_LINE else f"{line[:SHOWN_OF_LINE]}…"
        self._send(m.Warning(code="text-refused", message=f"“{shown}” will not be answered: {why}"))

    def _on_bad_picture(self, error: PictureError) -> None:
        self._metrics.bad_pictures.inc()
        now = self._loop.time()
        if now - self._warned_at >= self._limits.warn_every_s:  # a camera sends dozens a second
            self._warned_at = now
            self._send(m.Warning(code="bad-picture", message=str(error)))

    def _make_converter(self) -> UserConverter:
        rate, channels = self._hello.audio_rate, self._hello.audio_channels
        return UserConverter(inbox=self.inbox, spec=self._spec, audio_rate=rate, audio_channels=channels)

    # ---- what leaves

    def _offer(self, unit: MediaUnit) -> None:
        self._handle_all(self._machine.offer(unit))
        self._wire.wake()

    def _send(self, message: m.ServerMessage) -> None:
        self._put(self._machine.send(message))

    def _put(self, message: str) -> None:
        if not self._wire.put(message):
            self.end(CloseCode.TRY_AGAIN_LATER, "the connection is too slow for this session")

    # ---- the end

    def _lost_client(self) -> None:
        self._client_gone = self._client_gone or not self.over
        self.end(CloseCode.GOING_AWAY, "the client is gone")

    def _notice_crash(self, tasks: list[asyncio.Task[None]]) -> None:
        """A fault of ours in one session must neither pass unseen nor reach the others."""
        for task in tasks:
            if task.done() and (fault := task.exception()) is not None:
                log.error("session %s failed", self.session_id, exc_info=fault)
                self.failed("the server failed")

    def _count_losses(self) -> None:
        outgoing, counts, metrics = self._machine.outgoing, self.inbox.counts(), self._metrics
        metrics.lost_units.inc(outgoing.lost_units + self._agent_pump.lost)
        metrics.lost_frames.inc(outgoing.lost_frames)
        metrics.skipped_user_units.inc(self._user_pump.lost)
        metrics.missing_samples.inc(counts.missing_samples)
        metrics.dropped_samples.inc(counts.dropped_samples)

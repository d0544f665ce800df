"""One session on the server's side, from hello to close.

`state` is that of the protocol: HELLO, QUEUED while it waits for a slot of the engine, READY while it runs,
CLOSED once its end is decided. Five tasks live as long as the connection, and the first to find a reason ends
them all:

    read      socket → protocol → inbox (text, interruptions) or the waiting user units
    decode    user units → decoding thread → inbox
    encode    the engine's units → encoding thread → the protocol's outgoing queue
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
from protocol.errors import Close, CloseCode
from protocol.media import MediaUnit
from protocol.outgoing import Lost
from protocol.session import Event, Send, ServerProtocol, State
from thinker.server.admission_queue import AdmissionQueue
from thinker.server.agent_messages import agent_messages, text_refused
from thinker.server.inbox import Inbox
from thinker.server.limits import ClientLimits, LimitChecker
from thinker.server.media import (
    MAX_SOUND_RATE,
    MIN_SOUND_RATE,
    DropOldestQueue,
    PictureError,
    UserConverter,
    decode_user_units,
    encode_agent_units,
)
from thinker.server.metrics import ServerMetrics
from thinker.server.outbox import Outbox
from thinker.units import AgentUnit, Engine, SessionHandle

log = logging.getLogger(__name__)


class Session:
    """Serves one connection, accepted before `run`, which returns when it is over.

    `token` is what the hello must bring, if anything; `decoding` and `encoding` have threads for media.
    """

    def __init__(
        self,
        socket: WebSocket,
        *,
        engine: Engine,
        admission_queue: AdmissionQueue,
        decoding: Executor,
        encoding: Executor,
        metrics: ServerMetrics,
        token: str | None,
        limits: ClientLimits,
    ) -> None:
        self.session_id = secrets.token_hex(8)
        self.told: m.Queued | None = None
        self.protocol = ServerProtocol(token=token)
        self._slot: SessionHandle | None = None
        self._engine = engine
        self._queue = admission_queue
        self._metrics = metrics
        self._limits = limits
        self._limit_checker = LimitChecker(limits, now=asyncio.get_running_loop().time())
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Close] = self._loop.create_future()
        self._client_gone = False
        self._hello = m.Hello()
        self._played_pts = 0
        self._underruns = 0
        self._speaking = False
        self._warned_at = -math.inf
        self._socket = socket
        self._outbox = Outbox(
            socket=socket, next_media=self.protocol.next_media, metrics=metrics,
            max_messages=limits.waiting_messages,
        )  # fmt: skip
        self._inbox = Inbox(engine.spec, metrics)
        self._decoding, self._encoding = decoding, encoding
        self._user_units = DropOldestQueue[MediaUnit](limits.waiting_user_units, metrics.skipped_user_units)
        self._agent_units = DropOldestQueue[AgentUnit](limits.waiting_agent_units, metrics.lost_units)

    # ---- called by the session manager and the queue

    @property
    def over(self) -> bool:
        return self._over.done()

    @property
    def running(self) -> bool:
        return self._slot is not None

    async def run(self) -> None:
        """Serve until either side ends it; the slot is free and the connection closed on return."""
        unit_ms = self._engine.spec.unit_ms
        parts = (
            self._read(),
            decode_user_units(self._user_units, self._decoding, self._make_converter, self._on_bad_picture),
            encode_agent_units(self._agent_units, self._encoding, unit_ms, self._offer),
            self._write(),
            self._watch(),
        )
        tasks = [asyncio.create_task(part) for part in parts]
        ends: list[asyncio.Future[Any]] = [self._over, *tasks]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._notice_crash(tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._release_slot()
            await asyncio.gather(*tasks, return_exceptions=True)
        close = await self._over
        log.info("session %s is over: %d %r", self.session_id, close.code, close.reason)  # no forged lines
        self._metrics.closes.labels("gone" if self._client_gone else str(int(close.code))).inc()
        if not self._client_gone:
            await self._outbox.close(close, within_s=self._limits.close_s)

    def begin(self) -> bool:
        self._slot = self._engine.open_session(inbox=self._inbox, on_unit=self.on_unit, on_end=self.on_end)
        if self._slot is None:
            return False
        log.info("session %s begins as number %d", self.session_id, self._slot.number)
        about = dataclasses.asdict(self._engine.spec)  # its fields are named as those of `ready`
        self._send(m.Ready(session_id=self.session_id, audio_codec="pcm16", video_codec="jpeg", **about))
        return True

    def tell(self, place: m.Queued) -> None:
        self.told = place
        self._send(place)

    def fail(self, reason: str) -> None:
        if not self.over:
            self._send(m.Error(code="engine-failed", message=reason, fatal=True))
            self.end(CloseCode.INTERNAL, reason)

    def end(self, code: CloseCode, reason: str) -> None:
        """End the session; the first reason counts."""
        self._handle_all(self.protocol.close(code, reason))

    def show_metrics(self, metrics: m.Metrics) -> None:
        """Send the numbers of the last second, when the session has begun."""
        if self.protocol.state is State.READY:
            self._send(metrics)

    # ---- called by the engine, on the model thread

    def on_unit(self, unit: AgentUnit) -> None:
        self._call_soon(partial(self._take_agent_unit, unit))

    def on_end(self, reason: str) -> None:
        self._call_soon(partial(self.fail, reason))

    def _call_soon(self, callback: Callable[[], None]) -> None:
        # At shutdown the loop may have closed under a unit that was on its way.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    # ---- the tasks

    async def _read(self) -> None:
        while not self.over:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._lost_client()
                return
            data: str | bytes = message.get("bytes") or message.get("text") or ""
            self._metrics.received_bytes.inc(len(data))
            self._end_if(self._limit_checker.received(len(data), now=self._loop.time()))
            self._handle_all(self.protocol.receive(data))
            self._outbox.wake()  # an ack may have let media go

    async def _write(self) -> None:
        await self._outbox.write()
        self._lost_client()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(self._limits.ping_every_s, self._limits.hello_s))
            had_hello = self.protocol.state is not State.HELLO
            self._end_if(self._limit_checker.silent(had_hello=had_hello, now=self._loop.time()))
            if had_hello and not self.over:
                self._send(m.Ping(sent_us=time.monotonic_ns() // 1000))

    def _end_if(self, reason: Close | None) -> None:
        if reason is not None:
            self.end(reason.code, reason.reason)

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
            case Lost():
                self._metrics.lost_units.inc(event.units)
                self._metrics.lost_frames.inc(event.frames)
            case MediaUnit():
                self._user_units.put(event)
            case m.Hello():
                self._on_hello(event)
            case m.Text():
                self._on_text(event.text)
            case m.Interrupt():
                self._on_interrupt()
            case m.Ack():
                self._on_ack(event)

    def _on_hello(self, hello: m.Hello) -> None:
        if not MIN_SOUND_RATE <= hello.audio_rate <= MAX_SOUND_RATE:
            limits = f"{MIN_SOUND_RATE} to {MAX_SOUND_RATE}"
            self.end(CloseCode.UNSUPPORTED, f"audio_rate {hello.audio_rate} is not within {limits}")
            return
        self._hello = hello
        for text in hello.texts:  # before a slot is taken, so that unit 0 sees them
            self._on_text(text)
        if not self._queue.join(self):
            self.end(CloseCode.TRY_AGAIN_LATER, "too many clients wait already")

    def _on_text(self, text: str) -> None:
        if len(text) > m.MAX_TEXT_CHARS:
            self._refuse(text, f"a line has {m.MAX_TEXT_CHARS} characters at most")
        elif not self._inbox.push_text(text):
            self._refuse(text, "too much text waits already")

    def _on_interrupt(self) -> None:
        epoch, lost = self._inbox.interrupt()
        self._send(m.Interrupted(epoch=epoch, heard_pts=self._played_pts))
        for text in lost:
            self._refuse(text, "you interrupted before the agent had taken it in")

    def _on_ack(self, ack: m.Ack) -> None:
        self._played_pts = max(self._played_pts, ack.played_pts)
        if ack.underruns > self._underruns:
            self._underruns = ack.underruns
            self._metrics.underruns.inc()

    def _refuse(self, text: str, why: str) -> None:
        self._metrics.refused_texts.inc()
        self._send(text_refused(text, why))

    def _on_bad_picture(self, error: PictureError) -> None:
        self._metrics.bad_pictures.inc()
        now = self._loop.time()
        if now - self._warned_at >= self._limits.warn_every_s:  # a camera sends dozens a second
            self._warned_at = now
            self._send(m.Warning(code="bad-picture", message=str(error)))

    def _make_converter(self) -> UserConverter:
        rate, channels = self._hello.audio_rate, self._hello.audio_channels
        return UserConverter(
            inbox=self._inbox, spec=self._engine.spec, audio_rate=rate, audio_channels=channels
        )

    # ---- what leaves

    def _take_agent_unit(self, unit: AgentUnit) -> None:
        """Words and state go out at once: they are small, and stay whole when a slow client loses media."""
        if self.protocol.state is not State.READY:
            return
        decision, void = unit.decision, unit.epoch < self.protocol.epoch
        if decision.speaking != self._speaking and not void:
            self._speaking = decision.speaking
            self._send(m.AgentState(state="speaking" if decision.speaking else "listening"))
        self._metrics.refused_texts.inc(len(decision.refused) + len(decision.interrupted))
        audible = not void and not self.protocol.paused
        for message in agent_messages(unit.unit, decision, audible=audible):
            self._send(message)
        if audible:
            self._agent_units.put(unit)

    def _offer(self, unit: MediaUnit) -> None:
        self._handle_all(self.protocol.offer(unit))
        self._outbox.wake()

    def _send(self, message: m.ServerMessage) -> None:
        self._put(self.protocol.send(message))

    def _put(self, message: str) -> None:
        if not self._outbox.put(message):
            self.end(CloseCode.TRY_AGAIN_LATER, "the connection is too slow for this session")

    # ---- the end

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._engine.close_session(self._slot)
            self._slot = None
        self._queue.leave(self)

    def _lost_client(self) -> None:
        self._client_gone = self._client_gone or not self.over
        self.end(CloseCode.GOING_AWAY, "the client is gone")

    def _notice_crash(self, tasks: list[asyncio.Task[None]]) -> None:
        """A fault of ours in one session must neither pass unseen nor reach the others."""
        for task in tasks:
            if task.done() and (fault := task.exception()) is not None:
                log.error("session %s failed", self.session_id, exc_info=fault)
                self.fail("the server failed")

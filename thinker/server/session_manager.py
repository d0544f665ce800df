"""All sessions of one server, who may connect, and what runs beside them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.websockets import WebSocket

from protocol.errors import CloseCode
from protocol.messages import SUBPROTOCOL
from protocol.session import State
from thinker.report import EventLoopLag, Report
from thinker.server.access import Access
from thinker.server.admission_queue import AdmissionQueue
from thinker.server.limits import ClientLimits
from thinker.server.metrics import LoopLag, ServerMetrics, client_metrics
from thinker.server.session import Session
from thinker.units import Engine

ADMIT_EVERY_S = 0.1
METRICS_EVERY_S = 1.0


class SessionManager:
    """Holds every session from the moment that its socket is accepted until it is closed."""

    def __init__(self, engine: Engine, *, access: Access, limits: ClientLimits) -> None:
        self.engine = engine
        self.metrics = ServerMetrics()
        self.admission_queue = AdmissionQueue(engine, most=limits.waiting_sessions)
        self._lag = LoopLag()
        self._access = access
        self._limits = limits
        # JPEG and resampling let go of the GIL: a thread each keeps up with more sessions than a model does.
        # What one user sends never holds up what the agent says to others.
        self._decoding = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._encoding = ThreadPoolExecutor(1, thread_name_prefix="encode")
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._ending = False
        self.metrics.add_report(self.report)
        self.metrics.connections.set_function(self._sessions.__len__)
        self.metrics.sessions.set_function(lambda: sum(session.running for session in self._sessions))
        self.metrics.waiting.set_function(self.admission_queue.__len__)

    def models(self) -> list[dict[str, Any]]:
        """What `/v1/models` lists."""
        return [{"id": self.engine.spec.model, "workload": "live"}]

    def report(self) -> Report:
        lag = EventLoopLag(p99=round(self._lag.p99_ms(), 3))
        return msgspec.structs.replace(self.engine.report(), event_loop_lag_ms=lag)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(part()) for part in (self._lag.run, self._admit, self._show_metrics)]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pool in (self._decoding, self._encoding):
            pool.shutdown(wait=False)

    async def session(self, websocket: WebSocket) -> None:
        refusal = self._refusal(websocket)
        if refusal is not None:
            await websocket.send_denial_response(refusal)
            return
        known = self._access.has_token(websocket)
        session = Session(
            websocket, engine=self.engine, admission_queue=self.admission_queue,
            decoding=self._decoding, encoding=self._encoding, metrics=self.metrics,
            token=None if known else self._access.token, limits=self._limits,
        )  # fmt: skip
        if "token" in websocket.query_params and not known:
            session.end(CloseCode.UNAUTHORISED, "the token is missing or wrong")
        # Counted before anything is awaited: many may come at once.
        self._sessions[session] = asyncio.ensure_future(self._serve(session, websocket))
        try:
            await self._sessions[session]
        finally:
            del self._sessions[session]

    async def _serve(self, session: Session, websocket: WebSocket) -> None:
        await websocket.accept(SUBPROTOCOL)
        await session.run()

    async def end_sessions(self, within_s: float) -> None:
        """Close every session with 1001, let nobody in, and wait until they are gone, so long at most."""
        self._ending = True
        for session in self._sessions:
            session.end(CloseCode.GOING_AWAY, "the server is shutting down")
        if self._sessions:
            await asyncio.wait(self._sessions.values(), timeout=within_s)

    def _refusal(self, websocket: WebSocket) -> Response | None:
        if SUBPROTOCOL not in websocket.scope["subprotocols"]:
            return PlainTextResponse(f"offer the WebSocket subprotocol {SUBPROTOCOL}", 400)
        if self._ending:
            return PlainTextResponse("the server is shutting down", 503)
        if len(self._sessions) >= self._limits.connections and not self._make_room():
            return PlainTextResponse("too many connections", 503)
        return None

    def _make_room(self) -> bool:
        """End the connection that has kept back its hello for the longest time, if there is one."""
        silent = next((each for each in self._sessions if each.protocol.state is State.HELLO), None)
        if silent is None or len(self._sessions) >= 2 * self._limits.connections:
            return False
        silent.end(CloseCode.TRY_AGAIN_LATER, "others wait for this place, and no hello came")
        return True

    async def _admit(self) -> None:
        while True:
            self.admission_queue.admit()
            await asyncio.sleep(ADMIT_EVERY_S)

    async def _show_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            if self._sessions:
                metrics = client_metrics(self.report())
                for session in self._sessions:
                    session.show_metrics(metrics)

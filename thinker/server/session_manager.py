"""What all connections of one server share: who may come in, who is in, and what is measured of it."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.websockets import WebSocket

from protocol.errors import CloseCode
from protocol.messages import SUBPROTOCOL
from thinker.server.admission_queue import AdmissionQueue
from thinker.server.lag import LoopLag
from thinker.server.limits import ClientLimits
from thinker.server.metrics import ServerMetrics, client_metrics
from thinker.server.session import Session
from thinker.units import Engine

MAX_CONNECTIONS = 64
MAX_WAITING = 32
METRICS_EVERY_S = 1.0
# JPEG and resampling let go of the GIL; two threads keep up with far more sessions than one model does.
MEDIA_THREADS = 2


class SessionManager:
    """What all connections of one server share.

    Args:
        engine: serves the sessions.
        token: what clients must bring, or None for an open server.
        limits: for every session.

    Raises:
        ValueError: the token is empty, which would be an open server that looks like a closed one.
    """

    def __init__(self, engine: Engine, *, token: str | None, limits: ClientLimits) -> None:
        if token == "":
            raise ValueError("the token is empty; None is an open server")
        self.engine = engine
        self.lag = LoopLag()
        self.metrics = ServerMetrics(self.report)
        self.admission_queue = AdmissionQueue(engine, self.metrics, max_waiting=MAX_WAITING)
        self._token = token
        self._limits = limits
        self._pool = ThreadPoolExecutor(MEDIA_THREADS, thread_name_prefix="media")
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._ending = False
        self.metrics.connections.set_function(self._sessions.__len__)

    def report(self) -> dict[str, object]:
        """The engine's report with what only the server knows."""
        return {**self.engine.report(), "event_loop_lag_ms": {"p99": self.lag.p99_ms()}}

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Runs what runs beside the sessions."""
        tasks = [
            asyncio.create_task(part())
            for part in (self.lag.run, self.admission_queue.run, self._show_metrics)
        ]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pool.shutdown(wait=False)

    async def session(self, websocket: WebSocket) -> None:
        """The endpoint of sessions."""
        refusal = self._refusal(websocket)
        if refusal is not None:
            await websocket.send_denial_response(refusal)
            return
        known = self.knows_token(websocket)
        session = Session(
            websocket,
            spec=self.engine.spec,
            admission_queue=self.admission_queue,
            pool=self._pool,
            metrics=self.metrics,
            token=None if known else self._token,
            limits=self._limits,
        )
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

    def knows_token(self, connection: HTTPConnection) -> bool:
        """Whether ?token= or an Authorization header (Bearer) holds the token; true when there is none."""
        if self._token is None:
            return True
        scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
        bearer = credentials.strip() if scheme.lower() == "bearer" else ""  # schemes have no case
        offered = connection.query_params.get("token", bearer)
        return secrets.compare_digest(offered.encode(), self._token.encode())

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
        if len(self._sessions) >= MAX_CONNECTIONS:
            return PlainTextResponse("too many connections", 503)
        return None

    async def _show_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            if self._sessions:
                metrics = client_metrics(self.report())
                for session in self._sessions:
                    session.show_metrics(metrics)

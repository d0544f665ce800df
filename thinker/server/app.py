"""The Thinker's one port: the page, health, metrics, the report, and live sessions or films.

`build_app` and `build_film_app` make the ASGI app around an engine, `serve` runs it until told to stop. No
model runs here: the event loop only moves messages, and how late it is shows in the report.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from protocol.media import MAX_MEDIA_BYTES
from shared.errors import AddressError
from thinker.film.engine import FilmEngineLike
from thinker.server import static_files
from thinker.server.access import Access
from thinker.server.api_errors import ApiError, unauthorised
from thinker.server.connection import Connection, HttpConnection
from thinker.server.film_http import FilmHttp
from thinker.server.film_manager import FilmManager
from thinker.server.film_socket import FilmSocket
from thinker.server.host_origin import HostOriginMiddleware
from thinker.server.limits import ClientLimits
from thinker.server.session_manager import SessionManager
from thinker.units import Engine


class EngineState(Protocol):
    """How an engine is."""

    @property
    def ready(self) -> bool: ...
    @property
    def fault(self) -> str | None: ...


class MetricsText(Protocol):
    """Numbers for Prometheus."""

    def text(self) -> bytes: ...


class Service(Protocol):
    """What a server is there for: live sessions, or films."""

    @property
    def engine(self) -> EngineState: ...
    @property
    def metrics(self) -> MetricsText: ...
    def models(self) -> list[dict[str, Any]]:
        """What is particular of each model in `/v1/models`."""

    def report(self) -> msgspec.Struct:
        """What `/report` answers."""

    def lifespan(self, app: Starlette) -> AbstractAsyncContextManager[None]:
        """What runs beside it."""

    async def end_sessions(self, within_s: float) -> None:
        """End whatever is under way, and let nobody in."""


def build_app(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    operator_secret: str | None = None,
    allow_origins: Sequence[str] = (),
    limits: ClientLimits | None = None,
) -> Starlette:
    """The ASGI app of live sessions; `app.state.manager` is its `SessionManager`.

    Without a `token` the server is open to all clients, without an `operator_secret` there is no report. For
    `host` and `allow_origins` see `HostOriginMiddleware`.
    """
    access = Access(token=token, operator_secret=operator_secret)
    manager = SessionManager(engine, access=access, limits=limits or ClientLimits())
    routes = [
        WebSocketRoute("/v1/session", manager.session),
        WebSocketRoute("/v1/realtime/video", refuse_socket(NO_FILMS)),
        Route("/v1/videos{rest:path}", refuse(NO_FILMS), methods=["GET", "POST", "DELETE"]),
    ]
    return _app(manager, routes, access, host=host, allow_origins=allow_origins)


def build_film_app(
    engine: FilmEngineLike,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    operator_secret: str | None = None,
    allow_origins: Sequence[str] = (),
) -> Starlette:
    """The ASGI app of films; `app.state.manager` is its `FilmManager`. Options as of `build_app`."""
    access = Access(token=token, operator_secret=operator_secret)
    films = FilmManager(engine)
    routes = [
        *FilmHttp(films, access).routes,
        WebSocketRoute("/v1/realtime/video", FilmSocket(films, access).serve),
        WebSocketRoute("/v1/session", refuse_socket(NO_SESSIONS)),
    ]
    return _app(films, routes, access, host=host, allow_origins=allow_origins)


NO_FILMS = "this server holds live sessions and makes no films; start one with --config wan-pocket for those"
NO_SESSIONS = "this server makes films and holds no live sessions; start one with --config pocket for those"


def refuse(why: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint of the other kind of server."""

    async def answer(_: Request) -> Response:
        return ApiError(404, why, code="wrong_workload").response()

    return answer


def refuse_socket(why: str) -> Callable[[WebSocket], Awaitable[None]]:
    """The same for a WebSocket."""

    async def answer(websocket: WebSocket) -> None:
        await websocket.send_denial_response(ApiError(404, why, code="wrong_workload").response())

    return answer


def _app(
    service: Service, routes: Sequence[BaseRoute], access: Access, *, host: str, allow_origins: Sequence[str]
) -> Starlette:
    """What both kinds of servers have: the page, health, models, metrics, the report."""
    engine = service.engine
    began = int(time.time())

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        if engine.fault is not None:
            return PlainTextResponse(engine.fault, 503)
        return PlainTextResponse("ready") if engine.ready else PlainTextResponse("not ready yet", 503)

    async def models(request: Request) -> Response:
        if not access.has_token(request):
            return unauthorised().response()
        common = {"object": "model", "created": began, "owned_by": "thinker-performer"}
        return JSONResponse({"object": "list", "data": [common | model for model in service.models()]})

    async def metrics(request: Request) -> Response:
        if not access.has_token(request) and not access.is_operator(request):
            return PlainTextResponse("the token is missing or wrong", 401)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(
        routes=[
            *static_files.ROUTES,
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/v1/models", models),
            Route("/metrics", metrics),
            Route("/report", _report_of(service, access)),
            *routes,
        ],
        middleware=[Middleware(HostOriginMiddleware, host=host, allow_origins=allow_origins)],
        lifespan=service.lifespan,
    )
    app.state.manager = service
    return app


def _report_of(service: Service, access: Access) -> Callable[[Request], Awaitable[Response]]:
    async def report(request: Request) -> Response:
        if not access.has_operator:
            why = "this server was started without an operator's secret, which the report asks for: set one"
            return PlainTextResponse(why, 403)
        if not access.is_operator(request):
            why = "the report wants the operator's secret, as Authorization: Bearer SECRET"
            return PlainTextResponse(why, 401, {"www-authenticate": "Bearer"})
        return Response(msgspec.json.encode(service.report()), media_type="application/json")

    return report


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are the process's own business: it sets `stop`."""
        yield


async def serve(
    app: Starlette,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    listening: Callable[[int], None] | None = None,
) -> None:
    """Serve an app until `stop` is set; sessions are closed with 1001 then.

    Port 0 takes a free one. `listening` is called once with the port, when clients can connect.

    Raises:
        AddressError: the address can't be listened on.
    """
    manager: Service = app.state.manager
    listener = _listen(host, port)
    server = _Server(
        uvicorn.Config(
            app, http=HttpConnection, ws=Connection, ws_max_size=MAX_MEDIA_BYTES,
            ws_ping_interval=10.0, ws_ping_timeout=20.0,
            ws_per_message_deflate=False,  # media is compressed already, and inflating is a way to be flooded
            log_config=None, log_level="warning",  # its notices hold addresses, and addresses the token
            access_log=False, lifespan="on", timeout_graceful_shutdown=2,
        )
    )  # fmt: skip
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    if listening is not None:
        listening(listener.getsockname()[1])
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await manager.end_sessions(within_s=3.0)
    finally:
        stopping.cancel()
        server.should_exit = True
        await serving


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        raise AddressError(f"can't listen on {host}:{port}: {error}") from error

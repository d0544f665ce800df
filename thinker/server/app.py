"""The Thinker's one port: the page, health, metrics, the report, and sessions over WebSocket.

`build_app` makes the ASGI app around an engine, `serve` runs it until told to stop. No model runs here: the
event loop only moves messages, and how late it is shows in the report.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator, Sequence

import msgspec
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute

from protocol.media import MAX_MEDIA_BYTES
from shared.errors import AddressError
from thinker.server import static_files
from thinker.server.access import Access
from thinker.server.connection import Connection, HttpConnection
from thinker.server.host_origin import HostOriginMiddleware
from thinker.server.limits import ClientLimits
from thinker.server.session_manager import SessionManager
from thinker.units import Engine


def build_app(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    operator_secret: str | None = None,
    allow_origins: Sequence[str] = (),
    limits: ClientLimits | None = None,
) -> Starlette:
    """The ASGI app; `app.state.manager` is its `SessionManager`.

    Without a `token` the server is open to all clients, without an `operator_secret` there is no report. For
    `host` and `allow_origins` see `HostOriginMiddleware`.
    """
    access = Access(token=token, operator_secret=operator_secret)
    manager = SessionManager(engine, access=access, limits=limits or ClientLimits())

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        if engine.fault is not None:
            return PlainTextResponse(engine.fault, 503)
        return PlainTextResponse("ready") if engine.ready else PlainTextResponse("not ready yet", 503)

    async def metrics(request: Request) -> Response:
        if not access.has_token(request) and not access.is_operator(request):
            return PlainTextResponse("the token is missing or wrong", 401)
        return Response(manager.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def report(request: Request) -> Response:
        if operator_secret is None:
            why = "this server was started without an operator's secret, which the report asks for: set one"
            return PlainTextResponse(why, 403)
        if not access.is_operator(request):
            why = "the report wants the operator's secret, as Authorization: Bearer SECRET"
            return PlainTextResponse(why, 401, {"www-authenticate": "Bearer"})
        return Response(msgspec.json.encode(manager.report()), media_type="application/json")

    app = Starlette(
        routes=[
            *static_files.ROUTES,
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/report", report),
            WebSocketRoute("/v1/session", manager.session),
        ],
        middleware=[Middleware(HostOriginMiddleware, host=host, allow_origins=allow_origins)],
        lifespan=manager.lifespan,
    )
    app.state.manager = manager
    return app


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
    """Serve an app of `build_app` until `stop` is set; sessions are closed with 1001 then.

    Port 0 takes a free one. `listening` is called once with the port, when clients can connect.

    Raises:
        AddressError: the address can't be listened on.
    """
    manager: SessionManager = app.state.manager
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

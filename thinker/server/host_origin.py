"""Who may ask: requests that name this server, from its own pages or those of a known origin.

A browser asks any server for any page. It names the origin of the page that made it ask, and without a check
of that any page could talk to a local server. A page's own name can also lead to another address later (DNS
rebinding): page and server are then of one origin, so the name must be one that this server goes by. An
address needs no such check, since nobody can make it lead elsewhere.
"""

import ipaddress
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send


class HostOriginMiddleware:
    """ASGI middleware that refuses what names another host or comes from another origin.

    Args:
        app: answers to what is let through.
        host: that the server listens on: a name of it is one that clients may use.
        allow_origins: pages of these may ask too, such as "https://example.org", and their hosts are names of
            this server, as behind a proxy.
    """

    def __init__(self, app: ASGIApp, *, host: str, allow_origins: Sequence[str]) -> None:
        self._app = app
        self._origins = {origin.lower() for origin in allow_origins}
        self._names = {"localhost", host.lower(), *(urlsplit(origin).hostname for origin in self._origins)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "").lower()
        if not self._leads_here_alone(host):
            why = "this server does not go by that name; see --host and --allow-origin"
            return PlainTextResponse(why, HTTPStatus.MISDIRECTED_REQUEST)
        origin = headers.get("origin", f"//{host}").lower()  # only browsers send one
        if origin not in self._origins and origin.partition("//")[2] != host:
            why = "pages of this origin may not connect; see --allow-origin"
            return PlainTextResponse(why, HTTPStatus.FORBIDDEN)
        return None

    def _leads_here_alone(self, host: str) -> bool:
        """Whether a Host header, with or without a port, can mean no other server."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and (name in self._names or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""The page: static files of `thinker/page`, with the headers that a page with a microphone ought to have."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

PAGE = Path(__file__).parents[1] / "page"

# Written out: the system's table is wrong on some machines, and a worklet of the wrong type won't load.
_MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}

# Everything comes from this server, the session's WebSocket too. The address may hold the token: no referrer.
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'self'; media-src 'self' blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


async def _index(_: Request) -> Response:
    return _file("index.html")


async def _film(_: Request) -> Response:
    return _file("film.html")


async def _asset(request: Request) -> Response:
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    """One file of the page's folder, which is flat: a name with a folder in it never gets here."""
    path = PAGE / name
    media_type = _MEDIA_TYPES.get(path.suffix)
    if media_type is None or path not in PAGE.iterdir():  # asking for a name that is too long would raise
        return PlainTextResponse("there is no such file", 404)
    return FileResponse(path, media_type=media_type, headers=_HEADERS)


ROUTES = [Route("/", _index), Route("/film", _film), Route("/page/{name}", _asset)]

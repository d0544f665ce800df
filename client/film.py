"""A film over HTTP, as it comes: init segment and fragments of an MP4."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from client.errors import ClientError

CONNECT_WITHIN_S = 10.0
WARNINGS_HEADER = "x-warnings"
NEXT_WITHIN_S = 600.0  # for a block, on a machine that is slow


@dataclass(frozen=True, slots=True)
class FilmServer:
    """A server of films, and the token that it asks for."""

    url: str
    token: str | None = None

    def model(self) -> dict[str, Any]:
        """What it makes: `size`, `fps`, `block_frames` and so on.

        Raises:
            ClientError: there is no server, it lets nobody in without a token, or it makes no films.
        """
        with _told(self.url), self._client() as client:
            answer = client.get("/v1/models")
            _check(answer)
            model: dict[str, Any] = answer.json()["data"][0]
        if model.get("workload") != "film":
            raise ClientError(f"{self.url} makes no films, it holds live sessions with {model['id']}")
        return model

    def stream(
        self,
        request: dict[str, Any],
        on_bytes: Callable[[bytes], None],
        on_warning: Callable[[str], None],
    ) -> None:
        """Make a film; `on_bytes` gets it piece by piece, in order.

        `on_warning` gets what of the prompts is taken for something else, or left out.

        Raises:
            ClientError: the server refuses it, or could not make it to its end; says why.
        """
        with (
            _told(self.url),
            self._client() as client,
            client.stream("POST", "/v1/videos/stream/cmaf", json=request) as answer,
        ):
            if answer.is_error:
                answer.read()
            _check(answer)
            for warning in json.loads(answer.headers.get(WARNINGS_HEADER, "[]")):
                on_warning(warning)
            for piece in answer.iter_raw():
                on_bytes(piece)

    def _client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = httpx.Timeout(CONNECT_WITHIN_S, read=NEXT_WITHIN_S)
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    try:
        why = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        why = f"the server answered {answer.status_code}"
    raise ClientError(why)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Faults of the connection in words."""
    try:
        yield
    except httpx.ConnectError:
        raise ClientError(f"nobody answers at {url}") from None
    except httpx.TimeoutException:
        raise ClientError(f"{url} does not answer any more") from None
    except httpx.HTTPError as error:
        raise ClientError(f"the film ended before its end: {error or type(error).__name__}") from None

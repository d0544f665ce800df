"""Films over HTTP: OpenAI's `/v1/videos`, and a film as a stream while it is made."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from thinker.server.access import Access
from thinker.server.api_errors import ApiError, unauthorised
from thinker.server.film_manager import FilmManager, Job
from thinker.server.film_request import read_spec, to_request
from thinker.server.film_run import FilmFailedError, FilmRun, RunState

TAKEN_WITHIN_S = 60.0  # a client that takes nothing for so long is hung up on
MOST_LISTED = 100

Endpoint = Callable[[Request], Awaitable[Response]]


class FilmHttp:
    """The routes of films."""

    def __init__(self, films: FilmManager, access: Access) -> None:
        self._films = films
        self._access = access
        self.routes = [
            Route("/v1/videos", self._checked(self.create), methods=["POST"]),
            Route("/v1/videos", self._checked(self.list_jobs), methods=["GET"]),
            Route("/v1/videos/stream/cmaf", self._checked(self.stream), methods=["POST"]),
            Route("/v1/videos/{id}", self._checked(self.retrieve), methods=["GET"]),
            Route("/v1/videos/{id}", self._checked(self.delete), methods=["DELETE"]),
            Route("/v1/videos/{id}/content", self._checked(self.content), methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        asked = to_request(
            await read_spec(request), model=self._films.engine.model, shape=self._films.engine.format
        )
        return JSONResponse(self._films.begin_job(asked, self._warnings(asked)).public())

    async def list_jobs(self, request: Request) -> Response:
        del request
        newest = list(reversed(self._films.jobs.values()))[:MOST_LISTED]
        data = [job.public() for job in newest]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return JSONResponse({"object": "list", "data": data, "has_more": False, **ends})

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(self._job(request).public())

    async def delete(self, request: Request) -> Response:
        job = self._job(request)
        self._films.forget(job)
        return JSONResponse({"id": job.id, "object": "video.deleted", "deleted": True})

    async def content(self, request: Request) -> Response:
        job = self._job(request)
        if job.run.state is RunState.FAILED:
            raise ApiError(409, f"the film failed: {job.run.fault}", code="generation_failed")
        if job.state is not RunState.COMPLETED:
            raise ApiError(
                409, f"the film is not ready, {job.public()['progress']} % of it are made", code="not_ready"
            )
        return FileResponse(job.path(), media_type="video/mp4", filename=f"{job.id}.mp4")

    async def stream(self, request: Request) -> Response:
        asked = to_request(
            await read_spec(request), model=self._films.engine.model, shape=self._films.engine.format
        )
        return FilmStream(self._films, self._films.begin(asked), self._warnings(asked))

    def _warnings(self, asked: Any) -> list[str]:
        return [warning for scene in asked.scenes for warning in self._films.engine.read_prompt(scene.prompt)]

    def _job(self, request: Request) -> Job:
        number = request.path_params["id"]
        if number not in self._films.jobs:
            raise ApiError(
                404, f"there is no video {number!r}; ended ones are remembered for an hour", param="id"
            )
        return self._films.jobs[number]

    def _checked(self, endpoint: Endpoint) -> Endpoint:
        """Only with the token, and faults in their proper shape."""

        async def answer(request: Request) -> Response:
            try:
                if not self._access.has_token(request):
                    raise unauthorised()
                return await endpoint(request)
            except ApiError as error:
                return error.response()

        return answer


class FilmStream(Response):
    """A film as chunks of fragmented MP4, as it is made; a client that hangs up ends it.

    Where the film fails midway the last chunk is missing, so that the client knows that it has no whole file.
    """

    def __init__(self, films: FilmManager, run: FilmRun, warnings: list[str]) -> None:
        headers = {"cache-control": "no-store", "x-warnings": json.dumps(warnings)}  # ASCII alone
        super().__init__(media_type="video/mp4", headers=headers)
        del self.raw_headers[[name for name, _ in self.raw_headers].index(b"content-length")]
        self._films = films
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._films.leave(self._run)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        begun = False
        try:
            async for chunk in self._chunks():
                if not begun:
                    begun = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                async with asyncio.timeout(TAKEN_WITHIN_S):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except FilmFailedError as error:
            if not begun:  # still time to say why
                response = ApiError(503, str(error), code="generation_failed").response()
                await send({"type": "http.response.start", "status": 503, "headers": response.raw_headers})
                await send({"type": "http.response.body", "body": response.body})
            return
        if begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        async for fragment in self._run.fragments():
            first = fragment.encoded.init if fragment.block.number == 0 else b""
            yield first + fragment.encoded.fragment


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

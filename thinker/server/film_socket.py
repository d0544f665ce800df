"""Films over a WebSocket: blocks as they are made, and prompts that change meanwhile (docs/film-api.md)."""

import asyncio
import secrets
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from protocol.errors import CloseCode
from thinker.film.engine import Fragment
from thinker.film.video_encoder import mime_of
from thinker.server.access import Access
from thinker.server.api_errors import ApiError, unauthorised
from thinker.server.film_manager import FilmManager
from thinker.server.film_request import MAX_BODY, check_prompt, to_request, to_spec
from thinker.server.film_run import FilmFailedError, FilmRun, RunState
from thinker.server.limits import TokenBucket

START_WITHIN_S = 10.0
TAKEN_WITHIN_S = 60.0
AHEAD_S = 1.5  # how far a film without end is made before it is played
TELL_QUEUE_EVERY_S = 1.0
MESSAGES_BURST, MESSAGES_PER_S = 20, 2  # of one client


class FilmSocket:
    """The endpoint `/v1/realtime/video`."""

    def __init__(self, films: FilmManager, access: Access) -> None:
        self._films = films
        self._access = access

    async def serve(self, websocket: WebSocket) -> None:
        """One client, from its WebSocket's opening to its end."""
        if not self._access.has_token(websocket):
            await websocket.send_denial_response(unauthorised().response())
            return
        await websocket.accept()
        client = _Client(websocket, self._films)
        try:
            await client.run()
            await websocket.close(CloseCode.NORMAL)
        except ApiError as error:
            await _say_fault(websocket, error)
        except (WebSocketDisconnect, TimeoutError):
            pass  # it has left, or takes nothing
        except FilmFailedError as error:
            await _say_fault(websocket, ApiError(503, str(error), code="generation_failed"))
        finally:
            client.leave()


class _Client:
    def __init__(self, websocket: WebSocket, films: FilmManager) -> None:
        self._websocket = websocket
        self._films = films
        self._run: FilmRun | None = None
        self._bucket = TokenBucket(burst=MESSAGES_BURST, per_s=MESSAGES_PER_S, now=_now())
        self._stopped = False
        self._began = 0.0

    async def run(self) -> None:
        """Begin the film, then send and listen until it is over."""
        async with asyncio.timeout(START_WITHIN_S):
            message = await self._receive()
        if message.pop("type", None) != "session.start":
            raise ApiError(400, "the first message must be session.start", param="type")
        engine = self._films.engine
        request = to_request(to_spec(message), model=engine.model, shape=engine.format, endless=True)
        for scene in request.scenes:
            await self._warn(scene.prompt)
        self._run = self._films.begin(request)
        await self._wait_turn(self._run)
        self._began = asyncio.get_running_loop().time()
        sending = asyncio.create_task(self._send_film(self._run))
        listening = asyncio.create_task(self._listen(self._run))
        try:
            await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()  # raises what ended it; returns where the client asked to stop
                self._run.stop()
            await sending
        finally:
            for task in (sending, listening):
                task.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)

    def leave(self) -> None:
        """The film is not made further."""
        if self._run is not None:
            self._films.leave(self._run)

    async def _wait_turn(self, run: FilmRun) -> None:
        """Tell the client how many are before it, until it is its turn."""
        listening = asyncio.create_task(self._receive())
        told = -1
        try:
            while run.state is RunState.QUEUED:
                if (position := self._films.position(run)) != told:
                    told = position
                    await self._send({"type": "session.queued", "position": position})
                await asyncio.wait({listening}, timeout=TELL_QUEUE_EVERY_S / 5)
                if listening.done():
                    if listening.result().get("type") == "session.stop":
                        run.stop()
                    else:
                        listening = asyncio.create_task(self._receive())
        finally:
            listening.cancel()

    async def _send_film(self, run: FilmRun) -> None:
        async for fragment in run.fragments():
            if run.request.frames is None:
                await self._keep_pace(fragment, run.request.fps)
            if fragment.block.number == 0:
                await self._begin_video(fragment, run)
            await self._send(self._metadata(fragment))
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await self._websocket.send_bytes(fragment.encoded.fragment)
        reason = "complete" if run.state is RunState.COMPLETED else "stopped"
        await self._send({"type": "video.end", "num_frames": run.frames, "reason": reason})

    async def _begin_video(self, fragment: Fragment, run: FilmRun) -> None:
        shape = self._films.engine.format
        await self._send(
            {
                "type": "video.start", "session_id": f"film_{secrets.token_hex(8)}",
                "model": self._films.engine.model, "mime": mime_of(fragment.encoded.init),
                "width": shape.width, "height": shape.height, "fps": run.request.fps,
                "num_frames": run.request.frames, "block_frames": shape.block_frames(1),
                "encoder": self._films.report().encoder,
            }
        )  # fmt: skip
        await self._websocket.send_bytes(fragment.encoded.init)

    def _metadata(self, fragment: Fragment) -> dict[str, Any]:
        block = fragment.block
        stages = [
            {
                "stage": stage.stage, "process": stage.process,
                "began_ms": round(1e3 * (stage.began - self._began), 1),
                "ended_ms": round(1e3 * (stage.ended - self._began), 1),
            }
            for stage in fragment.stages
        ]  # fmt: skip
        return {
            "type": "video.chunk_metadata", "block": block.number, "scene": block.scene,
            "prompt": fragment.prompt, "first_frame": block.first_frame, "num_frames": block.frames,
            "bytes": len(fragment.encoded.fragment), "stages": stages,
        }  # fmt: skip

    async def _keep_pace(self, fragment: Fragment, fps: int) -> None:
        """A film without end stays a little ahead of its playing, so that a new prompt is soon seen."""
        due = self._began + fragment.block.first_frame / fps - AHEAD_S
        await asyncio.sleep(due - asyncio.get_running_loop().time())

    async def _listen(self, run: FilmRun) -> None:
        """Take the client's messages until it asks to stop."""
        while True:
            message = await self._receive()
            match message.get("type"):
                case "session.stop":
                    return
                case "session.interaction":
                    if run.request.frames is not None:
                        raise ApiError(
                            400, "the prompt of a film with a length can't be changed", param="type"
                        )
                    prompt = message.get("prompt")
                    if not isinstance(prompt, str):
                        raise ApiError(400, "session.interaction needs a prompt", param="prompt")
                    prompt = check_prompt(prompt)
                    await self._warn(prompt)
                    run.change_prompt(prompt)
                case other:
                    raise ApiError(400, f"unknown message type {other!r}", param="type")

    async def _receive(self) -> dict[str, Any]:
        """A JSON object; raises WebSocketDisconnect when the client is gone."""
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        text = message.get("text")
        if not self._bucket.spend(1, _now()):
            raise ApiError(429, "more messages than a film needs")
        if text is None or len(text) > MAX_BODY:
            raise ApiError(400, f"messages are JSON texts of at most {MAX_BODY} characters")
        try:
            content = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ApiError(400, f"the message is not JSON: {error}") from None
        if not isinstance(content, dict):
            raise ApiError(400, "a message is a JSON object")
        return content

    async def _warn(self, prompt: str) -> None:
        for warning in self._films.engine.read_prompt(prompt):
            await self._send({"type": "warning", "message": warning})

    async def _send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(TAKEN_WITHIN_S):
            await self._websocket.send_text(msgspec.json.encode(message).decode())


async def _say_fault(websocket: WebSocket, error: ApiError) -> None:
    """Tell the client, if it is still there, and close."""
    code = CloseCode.POLICY if error.status < 500 else CloseCode.INTERNAL
    try:
        async with asyncio.timeout(TAKEN_WITHIN_S):
            await websocket.send_text(msgspec.json.encode({"type": "error", **error.body}).decode())
            await websocket.close(code, error.message[:100])
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        pass


def _now() -> float:
    return asyncio.get_running_loop().time()

"""What a client asks for, read and checked: JSON or a form in, a `FilmRequest` out, or an `ApiError`."""

import asyncio
import re
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from shared.film_messages import MAX_PROMPT
from shared.film_request import FilmRequest, Scene
from shared.models.film import FilmFormat
from thinker.server.api_errors import ApiError

MAX_BODY = 64 * 1024
BODY_WITHIN_S = 10.0
MAX_SCENES = 64
MAX_FRAMES = 20_000
MAX_FPS = 60
DEFAULT_SECONDS = 4.0


class SceneSpec(msgspec.Struct, forbid_unknown_fields=True):
    """One scene of a storyboard."""

    prompt: str
    num_frames: int | None = None
    seconds: float | None = None


class VideoSpec(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/videos`, and of `session.start`."""

    prompt: str | None = None
    scenes: list[SceneSpec] | None = None
    model: str | None = None
    num_frames: int | None = None
    seconds: float | None = None
    size: str | None = None
    fps: int | None = None
    seed: int = 0


async def read_spec(request: Request) -> VideoSpec:
    """The request's body; raises ApiError where it is too long or can't be read."""
    body = b""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY:
                    raise ApiError(413, f"the body is over {MAX_BODY} bytes")
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {BODY_WITHIN_S:g} s") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return to_spec(await _form_fields(request.headers, body), strict=False)
    try:
        return to_spec(msgspec.json.decode(body), strict=False)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None


def to_spec(fields: Any, *, strict: bool = True) -> VideoSpec:
    """Check names and types; numbers in quotes are numbers where `strict` is false."""
    try:
        return msgspec.convert(fields, VideoSpec, strict=strict)
    except msgspec.ValidationError as error:
        message = str(error)
        found = re.search(r"`\$\.?([^`]*)`$|unknown field `(\w+)`", message)
        raise ApiError(400, message, param=(found[1] or found[2]) if found else None) from None


async def _form_fields(headers: Headers, body: bytes) -> dict[str, Any]:
    async def stream() -> Any:
        yield body

    try:
        form = await MultiPartParser(headers, stream(), max_files=1, max_fields=20).parse()
    except (MultiPartException, KeyError) as error:
        raise ApiError(400, f"the form can't be read: {error}") from None
    try:
        return {name: _field(name, value) for name, value in form.multi_items()}
    finally:
        await form.close()


def _field(name: str, value: object) -> Any:
    if not isinstance(value, str):
        raise ApiError(400, "pictures to begin with are not supported", param=name)
    try:
        return msgspec.json.decode(value) if name == "scenes" else value
    except msgspec.DecodeError as error:
        raise ApiError(400, f"scenes is not JSON: {error}", param=name) from None


def to_request(spec: VideoSpec, *, model: str, shape: FilmFormat, endless: bool = False) -> FilmRequest:
    """Check what is asked for against what the model makes; `endless`: without a length it has none."""
    if spec.model not in {None, model}:
        raise ApiError(
            404,
            f"there is no model {spec.model!r} here; there is {model!r}",
            param="model",
            code="model_not_found",
        )
    size = f"{shape.width}x{shape.height}"
    if spec.size not in {None, size}:
        raise ApiError(400, f"size {spec.size!r} can't be made; {model} makes {size}", param="size")
    fps = shape.fps if spec.fps is None else spec.fps
    if not 1 <= fps <= MAX_FPS:
        raise ApiError(400, f"fps={fps} must be from 1 to {MAX_FPS}", param="fps")
    if not 0 <= spec.seed < 2**63:
        raise ApiError(400, f"seed={spec.seed} must be from 0 to 2^63 - 1", param="seed")
    if (spec.prompt is None) == (spec.scenes is None):
        raise ApiError(400, "give either prompt or scenes", param="prompt")
    scenes = _scenes(spec, fps, endless=endless)
    total = sum(scene.frames or 0 for scene in scenes)
    if total > MAX_FRAMES:
        raise ApiError(400, f"{total} frames are more than the {MAX_FRAMES} of one film", param="num_frames")
    return FilmRequest(scenes=scenes, seed=spec.seed, fps=fps)


def check_prompt(prompt: str, param: str = "prompt") -> str:
    """A prompt without white space around it, if it may be one."""
    bare = prompt.strip()
    if not bare:
        raise ApiError(400, "the prompt is empty", param=param)
    if len(bare) > MAX_PROMPT:
        raise ApiError(400, f"the prompt has {len(bare)} characters, {MAX_PROMPT} may be", param=param)
    try:
        bare.encode()
    except UnicodeEncodeError:
        raise ApiError(400, "the prompt is not valid Unicode", param=param) from None
    return bare


def _scenes(spec: VideoSpec, fps: int, *, endless: bool) -> tuple[Scene, ...]:
    if spec.prompt is not None:
        unbounded = endless and spec.num_frames is None and spec.seconds is None
        frames = None if unbounded else _frames(spec.num_frames, spec.seconds, fps, "")
        return (Scene(prompt=check_prompt(spec.prompt), frames=frames),)
    for name in ("num_frames", "seconds"):
        if getattr(spec, name) is not None:
            raise ApiError(400, f"{name} belongs to each of the scenes", param=name)
    assert spec.scenes is not None
    if not 1 <= len(spec.scenes) <= MAX_SCENES:
        raise ApiError(400, f"{len(spec.scenes)} scenes: there must be 1 to {MAX_SCENES}", param="scenes")
    return tuple(
        Scene(
            prompt=check_prompt(scene.prompt, f"scenes[{n}].prompt"),
            frames=_frames(scene.num_frames, scene.seconds, fps, f"scenes[{n}]."),
        )
        for n, scene in enumerate(spec.scenes)
    )


def _frames(num_frames: int | None, seconds: float | None, fps: int, where: str) -> int:
    if num_frames is not None and seconds is not None:
        raise ApiError(400, f"give {where}num_frames or {where}seconds, not both", param=f"{where}seconds")
    if num_frames is not None:
        if not 1 <= num_frames <= MAX_FRAMES:
            raise ApiError(
                400,
                f"{where}num_frames={num_frames} must be from 1 to {MAX_FRAMES}",
                param=f"{where}num_frames",
            )
        return num_frames
    seconds = DEFAULT_SECONDS if seconds is None else seconds
    if not 0 < seconds * fps <= MAX_FRAMES:
        raise ApiError(
            400,
            f"{where}seconds={seconds:g} must be above 0, and {MAX_FRAMES} frames at most",
            param=f"{where}seconds",
        )
    return max(1, round(seconds * fps))

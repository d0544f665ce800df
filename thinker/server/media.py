"""Media of one session: what a client sends becomes what the model takes, and what it made is coded.

Units wait in a `DropOldestQueue`: what comes faster than it can be converted is lost, the oldest first. The
converters are work for a thread of a pool, one call at a time; order is kept.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import simplejpeg
import soxr
from av import VideoFrame
from av.video.reformatter import VideoReformatter
from prometheus_client import Counter

from protocol.media import NO_FLAGS, MediaFlags, MediaKind, MediaUnit
from shared.models.family import AgentMedia
from thinker.server.inbox import Inbox
from thinker.units import AgentUnit, MediaSpec

T = TypeVar("T")

MIN_SOUND_RATE = 8_000
MAX_SOUND_RATE = 192_000
MAX_PIXELS = 3840 * 2160
# A progressive JPEG of a few kilobytes can ask for many passes over its pixels; honest ones have about ten.
MAX_SCANNED_PIXELS = 3 * MAX_PIXELS
JPEG_QUALITY = 85

_START_OF_SCAN = b"\xff\xda"


class PictureError(Exception):
    """A picture that can't be decoded or is too large; the message is one line for its sender."""


class SoundConverter:
    """Interleaved PCM16 of MIN_SOUND_RATE to MAX_SOUND_RATE Hz to mono of `out_rate`, streaming."""

    def __init__(self, *, rate: int, channels: int, out_rate: int) -> None:
        self._channels = channels
        self._stream: soxr.ResampleStream | None = None
        if rate != out_rate:
            # The variable-rate engine gives sound out as it comes in; the fixed one holds back up to 100 ms.
            self._stream = soxr.ResampleStream(rate, out_rate, 1, dtype="float32", quality="HQ", vr=True)
            silent_ms = np.zeros(rate // 1000, np.float32)
            # Its filter is filled with silence first, so that a whole unit in is a whole unit out from the
            # start.
            while not self._stream.resample_chunk(silent_ms).size:
                pass

    def convert(self, data: bytes) -> npt.NDArray[np.int16]:
        """Little-endian PCM16 to int16 [samples]; bytes after the last whole sample are dropped."""
        whole = len(data) // (2 * self._channels) * self._channels
        pcm = np.frombuffer(data, "<i2", count=whole).reshape(-1, self._channels)
        if self._channels == 1 and self._stream is None:
            return pcm[:, 0].astype(np.int16)
        mono = pcm.mean(axis=1, dtype=np.float32)
        if self._stream is not None and mono.size:
            mono = self._stream.resample_chunk(mono)
        rounded: npt.NDArray[np.int16] = np.clip(np.rint(mono), -32768, 32767).astype(np.int16)
        return rounded


class PictureConverter:
    """JPEG of any size to the model's picture: the middle of it, cut to the model's aspect and scaled."""

    def __init__(self, *, height: int, width: int) -> None:
        self._height = height
        self._width = width
        self._scaler = VideoReformatter()

    def convert(self, jpeg: bytes) -> npt.NDArray[np.uint8]:
        """Decode and scale; returns uint8 [height, width, 3] in RGB.

        Raises:
            PictureError: no JPEG, a damaged one, or one that is too large, which its header tells before any
                of it is decoded.
        """
        try:
            height, width, _, _ = simplejpeg.decode_jpeg_header(jpeg)
            if height * width > MAX_PIXELS:
                raise PictureError(f"a picture of {width}x{height} is too large")
            if (scans := jpeg.count(_START_OF_SCAN)) * height * width > MAX_SCANNED_PIXELS:
                raise PictureError(f"a picture of {width}x{height} has too many scans: {scans}")
            # Decoding at an eighth, a quarter or half of the size is free where that is still large enough.
            rgb = simplejpeg.decode_jpeg(jpeg, "RGB", min_height=self._height, min_width=self._width)
        except ValueError as error:
            raise PictureError(f"a picture can't be decoded: {error}") from error
        return self._fit(rgb)

    def _fit(self, rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        height, width, _ = rgb.shape
        if (height, width) == (self._height, self._width):
            return rgb
        kept_height = min(height, max(1, width * self._height // self._width))
        kept_width = min(width, max(1, height * self._width // self._height))
        top, left = (height - kept_height) // 2, (width - kept_width) // 2
        middle = np.ascontiguousarray(rgb[top : top + kept_height, left : left + kept_width])
        scaled = self._scaler.reformat(
            VideoFrame.from_ndarray(middle, format="rgb24"),
            width=self._width,
            height=self._height,
            interpolation="AREA",
            threads=1,
        )
        return scaled.to_ndarray().astype(np.uint8, copy=False)


class UserConverter:
    """Puts the units of one client into its session's inbox, as the model wants them."""

    def __init__(self, *, inbox: Inbox, spec: MediaSpec, audio_rate: int, audio_channels: int) -> None:
        self._inbox = inbox
        self._frames = spec.frames_per_unit
        self._sound = SoundConverter(rate=audio_rate, channels=audio_channels, out_rate=spec.input_rate)
        self._picture = PictureConverter(height=spec.input_height, width=spec.input_width)

    def convert(self, unit: MediaUnit) -> None:
        """Convert one unit and push it; the sound goes in whatever the pictures are, and completes it.

        Raises:
            PictureError: one of the pictures can't be used; those before it went in.
        """
        try:
            # The inbox keeps no more than the newest of a unit, so older ones aren't worth decoding.
            for jpeg in unit.frames[-self._frames :]:
                self._inbox.push_frames(self._picture.convert(jpeg)[None])
        finally:
            self._inbox.push_audio(self._sound.convert(unit.audio))


def code_agent_media(media: AgentMedia) -> tuple[bytes, tuple[bytes, ...]]:
    """The agent's sound as little-endian PCM16 and its frames as JPEG."""
    audio = media.pcm.astype("<i2").tobytes()
    frames = tuple(
        simplejpeg.encode_jpeg(np.ascontiguousarray(frame), JPEG_QUALITY, "RGB", colorsubsampling="420")
        for frame in media.frames
    )
    return audio, frames


class DropOldestQueue(Generic[T]):
    """A queue between tasks of one loop; beyond its size the oldest item is lost, and counted."""

    def __init__(self, size: int, lost: Counter) -> None:
        self._items: deque[T] = deque(maxlen=size)
        self._filled = asyncio.Event()
        self._lost = lost

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        if len(self._items) == self._items.maxlen:
            self._lost.inc()
        self._items.append(item)
        self._filled.set()

    async def get(self) -> T:
        """The oldest item, as soon as there is one. For one reader at a time."""
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        return self._items.popleft()


async def decode_user_units(
    units: DropOldestQueue[MediaUnit],
    pool: Executor,
    make_converter: Callable[[], UserConverter],
    on_bad_picture: Callable[[PictureError], None],
) -> None:
    """Put user units into the inbox until cancelled; who comes too fast loses pictures, then old units.

    The converter is made for the first unit, when the client is known.
    """
    loop = asyncio.get_running_loop()
    converter: UserConverter | None = None
    while True:
        unit = await units.get()
        if units:
            unit = dataclasses.replace(unit, frames=())  # newer pictures wait already
        converter = converter or make_converter()
        try:
            await loop.run_in_executor(pool, converter.convert, unit)
        except PictureError as error:
            on_bad_picture(error)


async def encode_agent_units(
    units: DropOldestQueue[AgentUnit], pool: Executor, unit_ms: int, offer: Callable[[MediaUnit], None]
) -> None:
    """Code the engine's units until cancelled, and offer each; one that follows a gap is marked."""
    loop = asyncio.get_running_loop()
    expected = 0
    while True:
        unit = await units.get()
        audio, frames = await loop.run_in_executor(pool, code_agent_media, unit.media)
        offer(
            MediaUnit(
                kind=MediaKind.AGENT,
                flags=NO_FLAGS if unit.unit <= expected else MediaFlags.DISCONTINUITY,
                epoch=unit.epoch, unit=unit.unit, pts_us=unit.unit * unit_ms * 1000,
                audio=audio, frames=frames,
            )
        )  # fmt: skip
        expected = unit.unit + 1

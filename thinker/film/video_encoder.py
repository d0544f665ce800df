"""Frames to H.264 in fragmented MP4 (CMAF), a fragment for each block.

Every block is a closed group of pictures that begins with a key frame, so a fragment plays as soon as it is
there, and a file of the first N fragments is whole. libx264 makes them in this process; where the machine has
a VA-API device that can, an `ffmpeg` child does it there instead, which was tried before it is chosen.
"""

import functools
import io
import logging
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray

log = logging.getLogger(__name__)

LIBX264, VAAPI = "libx264", "h264_vaapi"
MOVFLAGS = "empty_moov+default_base_moof+frag_custom+skip_trailer"  # one fragment, and nothing behind it
RENDER_DEVICE = Path("/dev/dri/renderD128")
PROBE_WITHIN_S = 10.0
ENCODE_WITHIN_S = 60.0
QUALITY = 20  # constant rate factor of x264, quantiser of VA-API

Frames = NDArray[np.uint8]
"""RGB, [frames, height, width, 3]; both sizes even."""


@dataclass(frozen=True, slots=True)
class VideoShape:
    """What an encoder needs to know of a film."""

    width: int
    height: int
    fps: int


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block's fragment, and the init segment, which is the same for all blocks of a film."""

    init: bytes
    fragment: bytes


class VideoEncoder(Protocol):
    """Encodes blocks of one film, each by itself."""

    name: str

    def encode(self, frames: Frames, *, number: int, first_frame: int) -> EncodedBlock:
        """The film's block `number`, from 0, whose first frame is its frame `first_frame`."""


class X264Encoder:
    """In this process, through PyAV."""

    name = LIBX264

    def __init__(self, shape: VideoShape) -> None:
        self._shape = shape

    def encode(self, frames: Frames, *, number: int, first_frame: int) -> EncodedBlock:
        shape, file = self._shape, io.BytesIO()
        options = {"movflags": MOVFLAGS, "use_editlist": "0"}
        with av.open(file, "w", format="mp4", options=options) as container:
            stream = container.add_stream(
                LIBX264,
                rate=shape.fps,
                options={"preset": "veryfast", "tune": "zerolatency", "crf": str(QUALITY)},
            )
            assert isinstance(stream, VideoStream)
            stream.width, stream.height, stream.pix_fmt = shape.width, shape.height, "yuv420p"
            stream.codec_context.time_base = Fraction(1, shape.fps)
            stream.codec_context.gop_size = len(frames)
            stream.codec_context.thread_count = 1
            for pts, picture in enumerate(frames):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                frame.pts = pts
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return split_and_place(file.getvalue(), shape.fps, number=number, first_frame=first_frame)


class VaapiEncoder:
    """On the graphics processor, through an `ffmpeg` of the system: PyAV's own has no VA-API."""

    name = VAAPI

    def __init__(self, shape: VideoShape, *, codec: str = VAAPI) -> None:
        self._shape = shape
        self._command = child_command(shape, codec)

    def encode(self, frames: Frames, *, number: int, first_frame: int) -> EncodedBlock:
        done = subprocess.run(  # noqa: S603 - no word of it is a user's
            self._command, input=frames.tobytes(), capture_output=True, timeout=ENCODE_WITHIN_S, check=True
        )
        return split_and_place(done.stdout, self._shape.fps, number=number, first_frame=first_frame)


def child_command(shape: VideoShape, codec: str) -> list[str]:
    """An ffmpeg that reads a block's pictures and writes it as fragmented MP4 of one fragment."""
    device = ["-vaapi_device", str(RENDER_DEVICE)] if codec == VAAPI else []
    surface = (
        ["-vf", "format=nv12,hwupload", "-qp", str(QUALITY)] if codec == VAAPI else ["-pix_fmt", "yuv420p"]
    )
    return [
        shutil.which("ffmpeg") or "ffmpeg", "-hide_banner", "-loglevel", "error", *device,
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape.width}x{shape.height}", "-r", str(shape.fps),
        "-i", "-", *surface, "-c:v", codec, "-bf", "0", "-g", "1000",
        "-movflags", MOVFLAGS, "-use_editlist", "0", "-f", "mp4", "-",
    ]  # fmt: skip


def open_encoder(shape: VideoShape) -> VideoEncoder:
    """VA-API where this machine has it and it works, else libx264."""
    return VaapiEncoder(shape) if vaapi_works() else X264Encoder(shape)


@functools.cache
def vaapi_works() -> bool:
    """Whether a block could be encoded through VA-API; tried once, and the log says what came of it."""
    if not RENDER_DEVICE.exists():
        why = f"there is no {RENDER_DEVICE}"
    elif shutil.which("ffmpeg") is None:
        why = "there is no ffmpeg"
    else:
        try:
            probe = VaapiEncoder(VideoShape(320, 192, 16))
            probe.encode(np.zeros((2, 192, 320, 3), np.uint8), number=0, first_frame=0)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            why = (said.decode(errors="replace").strip().splitlines() or ["ffmpeg failed"])[-1]
        else:
            log.info("video is encoded by VA-API on %s", RENDER_DEVICE)
            return True
    log.info("video is encoded by libx264: %s", why)
    return False


def split_and_place(mp4: bytes, fps: int, *, number: int, first_frame: int) -> EncodedBlock:
    """Init segment and fragment of an MP4 that holds one, the fragment moved to its place in the film.

    A muxer that is opened for every block counts from 0: sequence number and decode time are set here, at
    their fixed places in the boxes `mfhd` and `tfdt` (ISO/IEC 14496-12, 8.8.5 and 8.8.12).

    Raises:
        ValueError: there is not one fragment in it.
    """
    init, fragment = bytearray(), bytearray()
    for kind, box in boxes(mp4):
        if kind in {b"ftyp", b"moov"}:
            init += box
        elif kind in {b"moof", b"mdat"}:
            fragment += box
    if fragment.count(b"tfdt") < 1 or not init:
        raise ValueError("no fragment was encoded")
    timescale = struct.unpack_from(">I", init, init.index(b"mdhd") + 16)[0]
    struct.pack_into(">I", fragment, fragment.index(b"mfhd") + 8, number + 1)
    where = fragment.index(b"tfdt")
    assert fragment[where + 4] == 1  # a decode time of 64 bits
    struct.pack_into(">Q", fragment, where + 8, first_frame * timescale // fps)
    return EncodedBlock(bytes(init), bytes(fragment))


def boxes(mp4: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(type, whole box) of every box at the top."""
    at = 0
    while at + 8 <= len(mp4):
        size = struct.unpack_from(">I", mp4, at)[0]
        yield mp4[at + 4 : at + 8], mp4[at : at + size]
        at += size


def mime_of(init: bytes) -> str:
    """What a browser's MediaSource is told, from the profile and level in an init segment."""
    at = init.index(b"avcC") + 5
    return f'video/mp4; codecs="avc1.{init[at : at + 3].hex()}"'


def finish_file(fragmented: Path, target: Path) -> None:
    """The same film as a plain MP4 with its index first: what is kept, and what players seek in."""
    with (
        av.open(fragmented) as source,
        av.open(target, "w", format="mp4", options={"movflags": "faststart"}) as container,
    ):
        reading = source.streams.video[0]
        writing = container.add_stream_from_template(reading)
        for packet in source.demux(reading):
            if packet.dts is not None:
                packet.stream = writing
                container.mux(packet)

"""The binary message: one unit of one direction, its sound and its frames together so that they can't part.

Little endian. A header of 27 bytes, then the sound and each frame, each with its length (u32) in front:

    0 kind u8 | 1 version u8 | 2 flags u16 | 4 epoch u32 | 8 unit u64 | 16 pts µs u64
    24 audio codec u8 | 25 video codec u8 | 26 frame count u8 | 27 …
"""

import dataclasses
import enum
import struct

from protocol.errors import Close, CloseCode, fault
from protocol.messages import VERSION

MAX_MEDIA_BYTES = 4 * 1024 * 1024

_header = struct.Struct("<BBHIQQBBB")
_length = struct.Struct("<I")
HEADER_BYTES = _header.size


class MediaKind(enum.IntEnum):
    """Whose media it is."""

    USER = 1
    AGENT = 2


class MediaFlags(enum.IntFlag):
    """Bits of the header's flags; unknown bits are kept and ignored."""

    DISCONTINUITY = 1  # units before this one are missing
    INTERRUPTED = 2  # first unit after an interruption
    LAST = 4  # reserved: nothing follows in this session
    KEYFRAME = 8  # reserved for codecs in which not every frame can be decoded alone


NO_FLAGS = MediaFlags(0)


class AudioEncoding(enum.IntEnum):
    """Names on the wire are the names here in lower case; OPUS is reserved."""

    NONE = 0
    PCM16 = 1
    OPUS = 2


class VideoEncoding(enum.IntEnum):
    """Names on the wire are the names here in lower case; H264 is reserved."""

    NONE = 0
    JPEG = 1
    H264 = 2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MediaUnit:
    """160 ms of one side. Empty `audio` is "no sound here", empty `frames` "no picture here".

    Attributes:
        pts_us: media time of the unit's first sample and frame, in the session time of its sender.
        audio: PCM16 little endian; the agent's is mono, the user's has the channels that its hello told.
        frames: coded pictures in time order, spread evenly over the unit.
    """

    kind: MediaKind
    flags: MediaFlags = NO_FLAGS
    epoch: int = 0
    unit: int
    pts_us: int
    audio_codec: AudioEncoding = AudioEncoding.PCM16
    video_codec: VideoEncoding = VideoEncoding.JPEG
    audio: bytes = b""
    frames: tuple[bytes, ...] = ()


def encode_media(unit: MediaUnit) -> bytes:
    """The unit as one binary message.

    Raises:
        ValueError: when a number does not fit its field, or the whole is over MAX_MEDIA_BYTES: a fault of the
            caller, not of the peer.
    """
    try:
        head = _header.pack(
            unit.kind, VERSION, unit.flags, unit.epoch, unit.unit, unit.pts_us,
            unit.audio_codec, unit.video_codec, len(unit.frames),
        )  # fmt: skip
    except struct.error as error:
        raise ValueError(f"media unit {unit.unit} does not fit the header: {error}") from error
    parts = [head]
    for part in (unit.audio, *unit.frames):
        parts += (_length.pack(len(part)), part)
    message = b"".join(parts)
    if len(message) > MAX_MEDIA_BYTES:
        raise ValueError(f"media unit {unit.unit} has {len(message)} bytes, over {MAX_MEDIA_BYTES}")
    return message


def decode_media(message: bytes) -> MediaUnit | Close:
    """Read one binary message. Never raises: a fault says what is wrong and how to close.

    The media itself is not decoded here; PCM16 is only checked to be whole samples.
    """
    if len(message) > MAX_MEDIA_BYTES:
        return fault(CloseCode.TOO_BIG, f"media message over {MAX_MEDIA_BYTES} bytes")
    if len(message) < HEADER_BYTES:
        return fault(CloseCode.INVALID_DATA, f"media message of {len(message)} bytes ends inside its header")
    _, version, *_, count = _header.unpack_from(message)
    if version != VERSION:
        return fault(CloseCode.VERSION_MISMATCH, f"media version {version}, this end speaks {VERSION}")
    parts = _split(message, count + 1)
    return parts if isinstance(parts, Close) else _assemble(message, parts)


def _assemble(message: bytes, parts: list[bytes]) -> MediaUnit | Close:
    """Header and parts as a unit, where the header's values have a meaning."""
    kind, _, flags, epoch, unit, pts_us, audio_codec, video_codec, _ = _header.unpack_from(message)
    audio, *frames = parts
    if audio_codec == AudioEncoding.PCM16 and len(audio) % 2:
        return fault(CloseCode.INVALID_DATA, f"pcm16 of {len(audio)} bytes is not whole samples")
    try:
        return MediaUnit(
            kind=MediaKind(kind),
            flags=MediaFlags(flags),
            epoch=epoch,
            unit=unit,
            pts_us=pts_us,
            audio_codec=AudioEncoding(audio_codec),
            video_codec=VideoEncoding(video_codec),
            audio=audio,
            frames=tuple(frames),
        )
    except ValueError as error:
        return fault(CloseCode.INVALID_DATA, f"media header: {error}")


def _split(message: bytes, count: int) -> list[bytes] | Close:
    """Cut the length-prefixed parts after the header; every byte must belong to one of them."""
    parts = []
    at = HEADER_BYTES
    for index in range(count):
        if at + _length.size > len(message):
            return fault(CloseCode.INVALID_DATA, f"media message ends before the length of part {index}")
        (size,) = _length.unpack_from(message, at)
        at += _length.size
        if at + size > len(message):
            left = len(message) - at
            return fault(CloseCode.INVALID_DATA, f"part {index} claims {size} bytes, {left} are left")
        parts.append(bytes(message[at : at + size]))
        at += size
    if at != len(message):
        return fault(CloseCode.INVALID_DATA, f"{len(message) - at} bytes after the last part")
    return parts

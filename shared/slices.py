"""What crosses the link: one message, a 64-byte header followed by one contiguous payload.

The header (little endian):

    offset  size  field
         0     2  magic, "TP"
         2     1  version
         3     1  kind
         4     2  flags
         6     2  zero
         8     4  session
        12     4  epoch
        16     8  unit (signed; a prefill comes before unit 0)
        24     4  payload bytes
        28     4  CRC-32 of the payload when the flag CHECKED is set, else 0
        32     8  sent_at_ns      sender's monotonic clock when the message left
        40     8  received_at_ns  latents: Performer's monotonic clock when the unit's state slice came
        48     8  append_ns       latents: how long all appends since the last latents took
        56     8  solve_ns        latents: how long the solve took

`received_at_ns` and `sent_at_ns` of latents are of one clock, so that the time spent on the exchange is known
without comparing the clocks of two hosts: (returned - slice sent) - (latents sent - slice received).
"""

import struct
import zlib
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import TypeAlias

from shared.errors import SliceError

HEADER_BYTES = 64
VERSION = 1

SEED = struct.Struct("<q")
"""Payload of a RESET: the seed of the session that begins."""

_MAGIC = b"TP"
_HEADER = struct.Struct("<2sBBHHIIqIIqqqq")
assert _HEADER.size == HEADER_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of any owner; a memoryview must be of format B."""


class Kind(IntEnum):
    """What a message holds."""

    PREFILL = 1
    STATE = 2
    REMEMBER = 3
    LATENTS = 4
    RESET = 5
    END = 6


class Flags(IntFlag):
    """How a message is to be read."""

    NONE = 0
    CHECKED = 1
    """The checksum field is the payload's CRC-32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceHeader:
    """Header of one message; see the module for the fields' meaning and layout."""

    kind: Kind
    session: int
    epoch: int
    unit: int
    payload_bytes: int = 0
    flags: Flags = Flags.NONE
    checksum: int = 0
    sent_at_ns: int = 0
    received_at_ns: int = 0
    append_ns: int = 0
    solve_ns: int = 0


def pack_header_into(buffer: bytearray | memoryview, header: SliceHeader) -> None:
    """Write `header` to the first 64 bytes of `buffer`."""
    _HEADER.pack_into(
        buffer, 0, _MAGIC, VERSION, header.kind, header.flags, 0, header.session, header.epoch, header.unit,
        header.payload_bytes, header.checksum, header.sent_at_ns, header.received_at_ns, header.append_ns,
        header.solve_ns,
    )  # fmt: skip


def unpack_header(buffer: Buffer) -> SliceHeader:
    """Read a header from the first 64 bytes of `buffer`; the payload is not looked at.

    Raises:
        SliceError: fewer than 64 bytes, another magic or version, or an unknown kind.
    """
    if len(buffer) < HEADER_BYTES:
        raise SliceError(f"slice header needs {HEADER_BYTES} bytes, got {len(buffer)}")
    magic, version, kind, flags, _, session, epoch, unit, payload_bytes, checksum, *stamps = (
        _HEADER.unpack_from(buffer)
    )
    if magic != _MAGIC or version != VERSION:
        raise SliceError(f"not a slice of version {VERSION}: magic {magic!r}, version {version}")
    try:
        known_kind = Kind(kind)
    except ValueError:
        raise SliceError(f"unknown kind of slice: {kind}") from None
    sent_at_ns, received_at_ns, append_ns, solve_ns = stamps
    return SliceHeader(
        kind=known_kind, flags=Flags(flags), session=session, epoch=epoch, unit=unit,
        payload_bytes=payload_bytes, checksum=checksum, sent_at_ns=sent_at_ns, received_at_ns=received_at_ns,
        append_ns=append_ns, solve_ns=solve_ns,
    )  # fmt: skip


def seal(buffer: bytearray | memoryview, header: SliceHeader, *, checked: bool = False) -> int:
    """Put the header before a payload that already lies at `buffer[64:]`; returns the bytes to commit.

    Args:
        buffer: A reserved link buffer whose payload is complete.
        header: `payload_bytes` says how long the payload is; checksum and the flag CHECKED are set here.
        checked: Compute the CRC-32 of the payload (about 1 ms for 1 MB): for debugging.
    """
    end = HEADER_BYTES + header.payload_bytes
    assert end <= len(buffer), f"payload of {header.payload_bytes} bytes in a buffer of {len(buffer)}"
    if checked:
        with memoryview(buffer) as whole, whole[HEADER_BYTES:end] as payload:
            header = replace(header, flags=header.flags | Flags.CHECKED, checksum=zlib.crc32(payload))
    pack_header_into(buffer, header)
    return end


def unseal(message: memoryview) -> tuple[SliceHeader, memoryview]:
    """Split a received message into header and payload uint8[payload_bytes], a view of `message`.

    Raises:
        SliceError: the header is wrong, the payload is not as long as the header says, or the checksum of a
            checked message does not match.
    """
    header = unpack_header(message)
    payload = message[HEADER_BYTES:]
    if len(payload) != header.payload_bytes:
        raise SliceError(
            f"{_describe(header)}: payload of {len(payload)} bytes, header says {header.payload_bytes}"
        )
    if Flags.CHECKED in header.flags and (found := zlib.crc32(payload)) != header.checksum:
        raise SliceError(f"{_describe(header)}: checksum {found:08x}, header says {header.checksum:08x}")
    return header, payload


def _describe(header: SliceHeader) -> str:
    return f"{header.kind.name.lower()} of session {header.session} epoch {header.epoch} unit {header.unit}"

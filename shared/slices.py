"""What crosses the link: one message, a 64-byte header followed by one contiguous payload.

The header (little endian):

    offset  size  field
         0     2  magic, "TP"
         2     1  version
         3     1  kind
         4     2  flags
         6     2  layer           first layer of the piece when a slice travels in several, else 0
         8     4  session
        12     4  (zero)
        16     8  unit, signed
        24     4  payload bytes
        28     4  CRC-32 of the payload when the flag CHECKED is set, else 0
        32     8  sent_at_ns      sender's monotonic clock when the message left
        40     8  received_at_ns  latents: Performer's monotonic clock when the unit's state slice came
        48     8  append_ns       latents: how long all appends since the last latents took
        56     8  solve_ns        latents: how long the solve took

`received_at_ns` and `sent_at_ns` of latents are of one clock, so that the time spent on the exchange is known
without comparing the clocks of two hosts: (returned - slice sent) - (latents sent - slice received).

Payloads: of STATE and COMMIT what the family packed, of LATENTS float32, of RESET the session's
seed and its slot as two int64, of END nothing.

Films use the same header: `session` is the film, `unit` the block, which counts through the film. SCENE
says from which block on a prompt holds (0: from the next one), its payload is what `shared.film_messages`
packs; CREDIT lets one block be denoised, and has none; LATENTS are a block's, in the number format of the
model, with `append_ns` for how long the block before took to be remembered and `layer` for the number of
SCENEs that the Performer has taken up; END ends a film.
"""

import struct
from enum import IntEnum, IntFlag
from typing import TypeAlias

import msgspec

from shared.errors import SliceError

HEADER_BYTES = 64
VERSION = 3

_MAGIC = b"TP"
_HEADER = struct.Struct("<2sBBHHI4xqIIqqqq")
assert _HEADER.size == HEADER_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of any owner; a memoryview must be of format B."""


class Kind(IntEnum):
    """What a message holds."""

    STATE = 2
    COMMIT = 3
    LATENTS = 4
    RESET = 5
    END = 6
    SCENE = 7
    CREDIT = 8


class Flags(IntFlag):
    """How a message is to be read."""

    NONE = 0
    CHECKED = 1
    """The checksum field is the payload's CRC-32: for debugging, about 1 ms for 1 MB."""
    MORE = 2
    """The batch that is to be solved is not complete yet: more follows before anything is done."""
    LAST = 4
    """The scene's last block: nothing will look back at it."""


_KINDS = {kind.value: kind for kind in Kind}  # calling an enum takes as long as all the rest of a header


class SliceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Header of one message; see the module for the fields' meaning and layout.

    A struct of msgspec's, because a frozen dataclass takes ten times as long to make: with two of them a
    small message through shared memory takes half as long again.
    """

    kind: Kind
    session: int
    unit: int
    layer: int = 0
    payload_bytes: int = 0
    flags: Flags = Flags.NONE
    checksum: int = 0
    sent_at_ns: int = 0
    received_at_ns: int = 0
    append_ns: int = 0
    solve_ns: int = 0


def describe(kind: Kind, unit: int) -> str:
    """What a message is, for texts about it: "state slice of unit 7"."""
    noun = " slice" if kind in {Kind.STATE, Kind.COMMIT} else ""
    return f"{kind.name.lower()}{noun} of unit {unit}"


def pack_header_into(
    buffer: bytearray | memoryview, header: SliceHeader, *, sent_at_ns: int, checksum: int
) -> None:
    """Write `header` to the first 64 bytes of `buffer`, with what is only known when the message leaves."""
    _HEADER.pack_into(
        buffer, 0, _MAGIC, VERSION, header.kind, header.flags, header.layer, header.session,
        header.unit, header.payload_bytes, checksum, sent_at_ns, header.received_at_ns, header.append_ns,
        header.solve_ns,
    )  # fmt: skip


def unpack_header(buffer: Buffer) -> SliceHeader:
    """Read a header from the first 64 bytes of `buffer`; the payload is not looked at.

    Raises:
        SliceError: fewer than 64 bytes, another magic or version, or an unknown kind.
    """
    if len(buffer) < HEADER_BYTES:
        raise SliceError(f"slice header needs {HEADER_BYTES} bytes, got {len(buffer)}")
    magic, version, kind, flags, layer, session, unit, payload_bytes, checksum, *stamps = _HEADER.unpack_from(
        buffer
    )
    if magic != _MAGIC or version != VERSION:
        raise SliceError(f"not a slice of version {VERSION}: magic {magic!r}, version {version}")
    if kind not in _KINDS:
        raise SliceError(f"unknown kind of slice: {kind}")
    sent_at_ns, received_at_ns, append_ns, solve_ns = stamps
    return SliceHeader(
        kind=_KINDS[kind], flags=Flags(flags) if flags else Flags.NONE, layer=layer, session=session,
        unit=unit, payload_bytes=payload_bytes, checksum=checksum, sent_at_ns=sent_at_ns,
        received_at_ns=received_at_ns, append_ns=append_ns, solve_ns=solve_ns,
    )  # fmt: skip

"""Faults of a peer are values here, never exceptions: whatever bytes arrive, decoding returns something.

A fault is a `Close`: the code and reason with which the connection is to be closed.
"""

import dataclasses
import enum

MAX_REASON_BYTES = 123  # a WebSocket close frame holds 125 bytes, two of them the code


class CloseCode(enum.IntEnum):
    """WebSocket close codes that this protocol uses; 4000 and above are its own."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011
    TRY_AGAIN_LATER = 1013
    VERSION_MISMATCH = 4000
    UNAUTHORISED = 4001
    HELLO_TIMEOUT = 4002
    SESSION_MOVED = 4003  # reserved, for sessions that can be resumed


@dataclasses.dataclass(frozen=True, slots=True)
class Close:
    """Close the connection with this code and reason (at most 123 bytes of UTF-8)."""

    code: CloseCode
    reason: str


def fault(code: CloseCode, reason: str) -> Close:
    """A `Close` whose reason is clipped to what fits into a close frame."""
    clipped = reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")
    return Close(code, clipped)

"""What Thinker and Performer say to each other before there is a link: three messages, and how they travel.

A message is a length (u32, little endian) and that many bytes of JSON, at most 64 kB. Everything that is read
is bounded in size and in time, because anyone may call a listening port.
"""

import socket
import struct
import sys
import time
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from shared.errors import RendezvousError

VERSION = 2

_LENGTH = struct.Struct("<I")
_MAX_BYTES = 64 * 1024
_M = TypeVar("_M")
_Device = Annotated[str, msgspec.Meta(pattern=r"\A(cpu|cuda|xpu)(:[0-9]{1,3})?\Z")]
_Word = Annotated[str, msgspec.Meta(max_length=256, pattern=r"\A[!-~]*\Z")]  # fit for a line of the log


class PeerHello(msgspec.Struct, frozen=True, kw_only=True, tag="thinker-performer hello"):
    """The Performer's first message: what it was started with and where it runs."""

    version: int
    digest: _Word
    slice_bytes: int
    latent_bytes: int
    depth: int
    link: _Word
    device: _Device
    available: tuple[_Word, ...]
    host: _Word


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The Thinker's answer: the link to open, and the address that it offers."""

    link: str
    address: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The Thinker's answer to a Performer that does not fit."""

    reason: str
    no_link: bool
    """Whether it was the link, and not the terms."""


def check_same_params(thinker: PeerHello, performer: PeerHello) -> None:
    """Refuse a Performer that was started with something else.

    Raises:
        RendezvousError: the message names the field and both values.
    """
    for field in ("version", "digest", "slice_bytes", "latent_bytes", "depth"):
        own, theirs = getattr(thinker, field), getattr(performer, field)
        if own != theirs:
            remedy = "version of this program" if field == "version" else "--config and weights"
            raise RendezvousError(
                f"rendezvous: {field} is {own} at the thinker and {theirs} at the performer: "
                f"give both the same {remedy}"
            )


def host_identity() -> str:
    """Equal for processes that can share memory and abstract sockets: one boot, one network namespace."""
    if sys.platform != "linux":
        return socket.gethostname()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/net').readlink()}"


def send(connection: socket.socket, message: PeerHello | Accepted | Refused) -> None:
    """Send one message.

    Raises:
        OSError: the other side went away.
    """
    body = msgspec.json.encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket, decoder: msgspec.json.Decoder[_M], timeout_s: float) -> _M:
    """The next message.

    Raises:
        OSError: it did not come within `timeout_s` seconds, or the other side went away.
        msgspec.DecodeError: what came is no such message.
    """
    deadline = time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    if length > _MAX_BYTES:
        raise msgspec.DecodeError(f"its message would have {length} bytes")
    body = _receive_exactly(connection, length, deadline)
    try:
        return decoder.decode(body)
    except RecursionError as error:  # thousands of brackets in a field that nobody asked for
        raise msgspec.DecodeError(str(error)) from error


def _receive_exactly(connection: socket.socket, num_bytes: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < num_bytes:
        connection.settimeout(max(1e-3, deadline - time.monotonic()))
        part = connection.recv(num_bytes - len(received))
        if not part:
            raise ConnectionError("it hung up")
        received += part
    return bytes(received)

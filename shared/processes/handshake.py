"""What two processes say to each other before there is a link, and how each knows that it may.

    listener ── Challenge (version, nonce) ───────────────────────► caller
             ◄── Proof (role, nonce, mac) ──────────────────────────
             ── Welcome (mac) ────────────────────────────────────► or Refused
             ◄── LinkParams (digest, sizes, link, device, host) ────
             ── Accepted (link, where to join it) ────────────────► or Refused

Both have the same secret, which never crosses. Nothing but versions, the role and random numbers crosses
before each has proven that it knows it: by HMAC-SHA256 over who speaks, both nonces and the role. Nonces are
fresh, so a recorded proof doesn't fit, and "who speaks" keeps a reflected one out. All that follows carries a
mac under a key made of secret and nonces, over direction, number and message: who sits between can read it,
and end it, and nothing else.

A message is a length (u32, little endian) and that many bytes of JSON, at most 64 kB, then its mac where
there is a key. What is read is bounded in size and in time, because anyone may call a listening port.
"""

import hashlib
import hmac
import secrets
import socket
import struct
import time
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import msgspec

from shared.errors import RendezvousError
from shared.links.base import LinkShape
from shared.links.choose import Capabilities, LogSafe
from shared.links.peer import receive_exactly

VERSION = 3

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_MAX_BYTES = 64 * 1024
_MAC_BYTES = hashlib.sha256().digest_size
_M = TypeVar("_M")
_Hex = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Challenge(msgspec.Struct, frozen=True, kw_only=True, tag="thinker-performer challenge"):
    """The listener's first message."""

    version: int
    nonce: _Hex


class Proof(msgspec.Struct, frozen=True, kw_only=True, tag="proof"):
    """The caller's: who it is, and that it knows the secret."""

    role: LogSafe
    nonce: _Hex
    mac: _Hex


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The listener's: that it knows the secret too."""

    mac: _Hex


class LinkParams(msgspec.Struct, frozen=True, kw_only=True, tag="params"):
    """The caller's: what it was started with and where it runs."""

    digest: LogSafe
    shape: LinkShape
    capabilities: Capabilities


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The listener's: the link to open, and the address that it offers."""

    link: str
    address: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The listener's, to a caller that does not fit."""

    reason: str
    no_link: bool = False
    """Whether it was the link."""


class HandshakeError(Exception):
    """Whoever is at the other end of a connection does not know the secret, or speaks otherwise."""


class HandshakeConnection:
    """Messages over a connected socket; under a key once both sides are known."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self._key = b""
        self._own, self._others = b"", b""  # directions
        self._sent = self._received = 0

    def send(self, message: msgspec.Struct) -> None:
        """Send one message; raises OSError when the other side went away."""
        body = msgspec.json.encode(message)
        self.line.sendall(_LENGTH.pack(len(body)) + body + self._mac(self._own, self._sent, body))
        self._sent += 1

    def receive(self, kinds: Any, timeout_s: float) -> Any:
        """The next message, of one of these kinds.

        Raises:
            OSError: it did not come within `timeout_s` seconds, or the other side went away.
            HandshakeError: what came is no such message, or not from who it should be.
        """
        deadline = time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(receive_exactly(self.line, _LENGTH.size, deadline))
        if length > _MAX_BYTES:
            raise HandshakeError(f"its message would have {length} bytes")
        body = receive_exactly(self.line, length, deadline)
        mac = receive_exactly(self.line, _MAC_BYTES, deadline) if self._key else b""
        if not hmac.compare_digest(mac, self._mac(self._others, self._received, body)):
            raise HandshakeError("its message was altered on the way")
        self._received += 1
        try:
            return msgspec.json.decode(body, type=kinds)
        except (msgspec.DecodeError, RecursionError) as error:  # thousands of brackets in a field too many
            raise HandshakeError(str(error)) from None

    def admit(self, secret: str, timeout_s: float) -> str:
        """The listener's side: let the caller prove itself; its role.

        Raises:
            OSError, HandshakeError: as `receive`, or the proof is wrong, which the caller is told.
        """
        nonce = secrets.token_hex(32)
        self.send(Challenge(version=VERSION, nonce=nonce))
        proof: Proof = self.receive(Proof, timeout_s)
        about = (nonce, proof.nonce, proof.role)
        if not hmac.compare_digest(proof.mac, _prove(secret, "caller", *about)):
            self.send(Refused(reason="secret"))
            raise HandshakeError("it does not know the secret")
        self.send(Welcome(mac=_prove(secret, "listener", *about)))
        self._use_key(secret, "listener", "caller", about)
        return proof.role

    def introduce(self, secret: str, role: str, timeout_s: float) -> None:
        """The caller's side: prove to know the secret, and let the listener prove it.

        Raises:
            OSError, HandshakeError: as `receive`, or the listener does not know the secret.
            RendezvousError: it has another version, or another secret.
        """
        challenge: Challenge = self.receive(Challenge, timeout_s)
        if challenge.version != VERSION:
            raise RendezvousError(
                f"rendezvous: the handshake has version {challenge.version} there and {VERSION} here: "
                "give both the same version of this program"
            )
        about = (challenge.nonce, secrets.token_hex(32), role)
        self.send(Proof(role=role, nonce=about[1], mac=_prove(secret, "caller", *about)))
        answer: Welcome | Refused = self.receive(Welcome | Refused, timeout_s)
        if isinstance(answer, Refused):
            raise RendezvousError(
                "rendezvous: the secret is another one there: give both processes the same file "
                "(--secret-file) or THINKER_PERFORMER_SECRET"
            )
        if not hmac.compare_digest(answer.mac, _prove(secret, "listener", *about)):
            raise HandshakeError("it does not know the secret")
        self._use_key(secret, "caller", "listener", about)

    def _use_key(self, secret: str, own: str, others: str, about: tuple[str, ...]) -> None:
        self._key = bytes.fromhex(_prove(secret, "key", *about))
        self._own, self._others = own.encode(), others.encode()
        self._sent = self._received = 0

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        if not self._key:
            return b""
        return hmac.digest(self._key, direction + b"\0" + _NUMBER.pack(number) + body, "sha256")


def _prove(secret: str, speaker: str, *about: str) -> str:
    """A mac over words that hold no zero byte, so that no two lists of them look alike."""
    return hmac.new(secret.encode(), "\0".join((speaker, *about)).encode(), "sha256").hexdigest()


def check_same_params(own: LinkParams, callers: LinkParams, here: str, there: str) -> None:
    """Refuse a caller that was started with something else.

    Raises:
        RendezvousError: the message names the field and both values.
    """
    mine, others = ({"digest": each.digest, **asdict(each.shape)} for each in (own, callers))
    for field, value in mine.items():
        if others[field] != value:
            raise RendezvousError(
                f"rendezvous: {field} is {value} at the {here} and {others[field]} at the {there}: "
                f"give both the same --config and weights"
            )

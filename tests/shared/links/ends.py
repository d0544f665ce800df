"""Both ends of a link for its tests; run by `conftest.py` in processes of their own.

The link "collective" is what xccl and nccl are, over gloo, which runs everywhere.
"""

import select
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor

from shared.errors import LinkClosed
from shared.links.base import LinkEnd, LinkShape
from shared.links.collective.backends import CollectiveBackend, GroupOptions
from shared.links.collective.ready_to_receive import CollectiveOffer, join_collective
from shared.links.peer import Peer
from shared.processes.rendezvous import HandshakeParams, RendezvousListener, accept_peers, join_peer
from shared.processes.roles import PERFORMER, THINKER
from shared.slices import Kind, SliceHeader

FLOOD_MESSAGES = 10
WARM_MESSAGES = 5
OPEN_TIMEOUT_S = 60.0
SECRET = "of these tests and no one else"
TIMEOUT_S = 600.0  # longer than any test: if the other side goes, this one sees it at once


def perform(port: int, link: str, shape: LinkShape, role: str, tell: Connection | None = None) -> None:
    """Be the Performer of the Thinker at `port`; it is told when some messages have crossed."""
    with join(port, link, shape) as end:
        play(role, end, lambda: tell.send("warm") if tell else None)


def think(tell: Connection, link: str, shape: LinkShape, role: str) -> None:
    """Be the Thinker; first its port is told."""
    with listening(link) as listener:
        tell.send(listener.port)
        with accept(listener, link, shape) as end:
            play(role, end, lambda: tell.send("warm"))


class PlainListener(socket.socket):
    """For a link that is opened without a rendezvous."""

    @property
    def port(self) -> int:
        return int(self.getsockname()[1])


def listening(link: str) -> RendezvousListener | PlainListener:
    if link != "collective":
        return RendezvousListener("127.0.0.1", 0, secret=SECRET, role=THINKER)
    listener = PlainListener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.settimeout(OPEN_TIMEOUT_S)
    return listener


def accept(listener: RendezvousListener | PlainListener, link: str, shape: LinkShape) -> LinkEnd:
    """The Thinker's end of a link."""
    if isinstance(listener, RendezvousListener):
        terms = HandshakeParams(secret=SECRET, digest="same", shape=shape, link=link)
        return accept_peers(listener, terms, timeout_s=OPEN_TIMEOUT_S)["performer"]
    connection, _ = listener.accept()
    with closing(CollectiveOffer(STAND_IN, shape, "127.0.0.1", device="cpu")) as offer:
        connection.sendall(offer.address.encode())
        return offer.open(Peer("performer", connection), OPEN_TIMEOUT_S)


def join(port: int, link: str, shape: LinkShape) -> LinkEnd:
    """The Performer's end."""
    if link != "collective":
        terms = HandshakeParams(secret=SECRET, digest="same", shape=shape, link=link)
        return join_peer("127.0.0.1", port, terms, role=PERFORMER, at=THINKER, timeout_s=OPEN_TIMEOUT_S)
    connection = socket.create_connection(("127.0.0.1", port))
    address = connection.recv(1000).decode()
    return join_collective(
        STAND_IN, address, shape.reversed, Peer("thinker", connection), OPEN_TIMEOUT_S, device="cpu"
    )


class GlooGroup:
    """Gloo, with an end that does not need the other side."""

    def __init__(self, setup: GroupOptions) -> None:
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(hours=1)
        self._group = gloo(setup.store, setup.rank, 2, options)
        self._other = 1 - setup.rank

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        work: dist.Work = self._group.send(tensors, rank, tag)
        return work

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        work: dist.Work = self._group.recv(tensors, rank, tag)
        return work

    def abort(self) -> None:
        with suppress(RuntimeError):
            scratch = torch.empty(1, dtype=torch.uint8)
            self._group.recv([scratch], self._other, 99).wait(timedelta(milliseconds=1))


STAND_IN = CollectiveBackend(name="collective", missing=lambda _: None, make=GlooGroup)


def play(role: str, end: LinkEnd, warm: Callable[[], None] = lambda: None) -> None:
    """Act until the role is over or the other side leaves."""
    with suppress(LinkClosed):
        ROLES[role](end, warm)


def header_of(payload_bytes: int, unit: int = 0, kind: Kind = Kind.STATE) -> SliceHeader:
    return SliceHeader(kind=kind, session=1, unit=unit, payload_bytes=payload_bytes)


def echo(end: LinkEnd, _warm: Callable[[], None]) -> None:
    """Return every message, the one of kind END too, which is the last."""
    kind = None
    while kind is not Kind.END:
        header, payload = end.receiver.receive(TIMEOUT_S)
        kind = header.kind
        end.sender.reserve(TIMEOUT_S)[: header.payload_bytes].copy_(payload)
        end.receiver.release()
        end.sender.send(replace(header, received_at_ns=header.sent_at_ns, sent_at_ns=0))


def flood(end: LinkEnd, _warm: Callable[[], None]) -> None:
    """Send numbered messages and leave at once."""
    for unit in range(FLOOD_MESSAGES):
        end.sender.reserve(TIMEOUT_S)[0] = unit
        end.sender.send(header_of(1, unit))


def hold(end: LinkEnd, _warm: Callable[[], None]) -> None:
    """Take one message and keep it, be half way through writing another, say so, and stay like that."""
    _, held = end.receiver.receive(TIMEOUT_S)
    end.sender.reserve(TIMEOUT_S)[0] = held[0]
    end.sender.send(header_of(1))
    end.sender.reserve(TIMEOUT_S)[0] = 1
    select.select([end.peer], [], [], TIMEOUT_S)


def pour(end: LinkEnd, warm: Callable[[], None]) -> None:
    """Send the largest messages, one after the other, each full of the number that is its unit."""
    unit = 0
    while True:
        end.sender.reserve(TIMEOUT_S).fill_(unit % 256)
        end.sender.send(header_of(end.sender.max_bytes, unit))
        unit += 1
        if unit == WARM_MESSAGES:
            warm()


def absorb(end: LinkEnd, warm: Callable[[], None]) -> None:
    """Take what `pour` sends, and look at every byte of it."""
    unit = 0
    while True:
        header, payload = end.receiver.receive(TIMEOUT_S)
        assert header.unit == unit
        assert len(payload) == end.receiver.max_bytes
        assert bool((payload == unit % 256).all()), f"message {unit} is not what was sent"
        end.receiver.release()
        unit += 1
        if unit == WARM_MESSAGES:
            warm()


ROLES: dict[str, Callable[[LinkEnd, Callable[[], None]], None]] = {
    "echo": echo, "flood": flood, "hold": hold, "pour": pour, "absorb": absorb,
}  # fmt: skip

if "WORK" in globals():  # set by who runs this file
    globals()[globals()["WORK"]](*globals()["WITH"])

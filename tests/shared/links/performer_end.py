"""A Performer for link tests, run as a process of its own.

`performer_end.py PORT LINK SLICE_BYTES LATENT_BYTES DEPTH ROLE`

The link "announced" is what xccl and nccl are, over gloo, which runs everywhere.
"""

import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import Tensor

from shared.errors import LinkClosed
from shared.links.announced import join_announced
from shared.links.base import LinkEnd, LinkShape
from shared.links.groups import Backend, Setting
from shared.links.peer import Peer
from shared.rendezvous import Terms, join_thinker
from shared.slices import Kind, SliceHeader

FLOOD_MESSAGES = 10
PATIENCE_S = 600.0  # longer than any test: if the test goes, this process sees it at once


def main(port: str, link: str, slice_bytes: str, latent_bytes: str, depth: str, role: str) -> None:
    shape = LinkShape(slice_bytes=int(slice_bytes), latent_bytes=int(latent_bytes), depth=int(depth))
    with join(int(port), link, shape) as end:
        play(role, end)


def join(port: int, link: str, shape: LinkShape) -> LinkEnd:
    if link != "announced":
        terms = Terms(digest="same", shape=shape, link=link)
        return join_thinker("127.0.0.1", port, terms, timeout_s=60)
    line = socket.create_connection(("127.0.0.1", port))
    address = line.recv(1000).decode()
    return join_announced(STAND_IN, address, shape, Peer("thinker", line), 60, device="cpu")


class GlooGroup:
    """Gloo, with an end that does not need the other side."""

    def __init__(self, setting: Setting) -> None:
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(hours=1)
        self._group = gloo(setting.store, setting.rank, 2, options)
        self._other = 1 - setting.rank

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


STAND_IN = Backend(name="announced", lacking=lambda _: None, make=GlooGroup)


def play(role: str, end: LinkEnd) -> None:
    """Act until the role is over or the test has seen enough and closes its end."""
    with suppress(LinkClosed):
        ROLES[role](end)


def latents(unit: int, payload_bytes: int) -> SliceHeader:
    return SliceHeader(kind=Kind.LATENTS, session=1, epoch=0, unit=unit, payload_bytes=payload_bytes)


def echo(end: LinkEnd) -> None:
    """Return every message, the one of kind END too, which is the last."""
    kind = None
    while kind is not Kind.END:
        header, payload = end.receiver.receive(PATIENCE_S)
        kind = header.kind
        end.sender.reserve(PATIENCE_S)[: header.payload_bytes].copy_(payload)
        end.receiver.release()
        end.sender.commit(replace(header, received_at_ns=header.sent_at_ns, sent_at_ns=0))


def flood(end: LinkEnd) -> None:
    """Send numbered messages and leave at once."""
    for number in range(FLOOD_MESSAGES):
        end.sender.reserve(PATIENCE_S)[0] = number
        end.sender.commit(latents(number, 1))


def hold(end: LinkEnd) -> None:
    """Take one message and keep it, be half way through writing another, say so, and stay like that."""
    _, held = end.receiver.receive(PATIENCE_S)
    end.sender.reserve(PATIENCE_S)[0] = held[0]
    end.sender.commit(latents(0, 1))
    end.sender.reserve(PATIENCE_S)[0] = 1
    select.select([end.peer], [], [], PATIENCE_S)


ROLES: dict[str, Callable[[LinkEnd], None]] = {"echo": echo, "flood": flood, "hold": hold}

if __name__ == "__main__":
    main(*sys.argv[1:])

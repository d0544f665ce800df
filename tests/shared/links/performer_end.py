"""A Performer for link tests, run as a process of its own.

`performer_end.py PORT LINK SLICE_BYTES LATENT_BYTES DEPTH ROLE`
"""

import select
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from shared.errors import LinkClosed
from shared.links.base import LinkEnd, LinkShape
from shared.rendezvous import Terms, join_thinker
from shared.slices import Kind, SliceHeader

FLOOD_MESSAGES = 10
PATIENCE_S = 600.0  # longer than any test: if the test goes, this process sees it at once


def main(port: str, link: str, slice_bytes: str, latent_bytes: str, depth: str, role: str) -> None:
    shape = LinkShape(slice_bytes=int(slice_bytes), latent_bytes=int(latent_bytes), depth=int(depth))
    terms = Terms(digest="same", shape=shape, link=link)
    with join_thinker("127.0.0.1", int(port), terms, timeout_s=60) as end:
        play(role, end)


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

"""A Performer for link tests, run as a process of its own: `performer_end.py PORT LINK SLICE LATENT DEPTH ROLE`.

Roles: `echo` returns every message until one is empty; `flood` sends numbered messages and closes at once;
`hang` takes nothing; `half` takes a slice, writes half a message into a buffer and waits to be killed.
"""

import logging
import os
import sys
import time

from shared.errors import LinkClosed
from shared.links.base import LinkEnd, LinkShape
from shared.rendezvous import Terms, join_thinker

FLOOD_MESSAGES = 10


def main(port: str, link: str, slice_bytes: str, latent_bytes: str, depth: str, role: str) -> None:
    shape = LinkShape(slice_bytes=int(slice_bytes), latent_bytes=int(latent_bytes), depth=int(depth))
    terms = Terms(digest="same", shape=shape, link=link)
    with join_thinker("127.0.0.1", int(port), terms, timeout_s=60) as end:
        ROLES[role](end)


def echo(end: LinkEnd) -> None:
    while True:
        message = end.receiver.receive(60)
        num_bytes = len(message)
        end.sender.reserve(60)[:num_bytes] = message
        end.receiver.release()
        end.sender.commit(num_bytes)
        if num_bytes == 0:
            break
    wait_for_the_end(end)


def flood(end: LinkEnd) -> None:
    for number in range(FLOOD_MESSAGES):
        end.sender.reserve(60)[0] = number
        end.sender.commit(1)


def hang(end: LinkEnd) -> None:
    end.sender.reserve(60)
    end.sender.commit(0)
    time.sleep(60)


def half(end: LinkEnd) -> None:
    end.receiver.receive(60)
    end.sender.reserve(60)[0] = os.getpid() % 256
    time.sleep(60)


def wait_for_the_end(end: LinkEnd) -> None:
    try:
        end.receiver.receive(60)
    except LinkClosed as closed:
        logging.getLogger(__name__).info("%s", closed)


ROLES = {"echo": echo, "flood": flood, "hang": hang, "half": half}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    main(*sys.argv[1:])

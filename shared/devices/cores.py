"""Threads of a process, and a core of its own for the thread that computes.

A core is claimed by binding a Unix socket with its number in the name. The name is abstract: it exists as
long as the process, in no file system, for all users of the machine (to be exact, of the network namespace).
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CPUS = Path("/sys/devices/system/cpu")
CLAIM = "\0thinker-performer/core/{}"
PIN = ("auto", "on", "off")
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""For processes with several compute threads, before torch is loaded: idle ones sleep instead of spinning."""


class Core:
    """A claimed core, with the thread that claimed it on it. A context manager; `release` gives it back."""

    def __init__(self, number: int, claim: socket.socket, before: set[int]) -> None:
        self.number = number
        self._claim = claim
        self._before = before

    def release(self) -> None:
        """Let the calling thread, which must be the one that claimed, run anywhere again."""
        os.sched_setaffinity(0, self._before)
        self._claim.close()

    def __enter__(self) -> Core:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def settle_threads(num_threads: int) -> None:
    """Let torch compute with so many threads, and run one operation at a time."""
    torch.set_num_threads(num_threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:  # something ran in parallel already: too late, and no harm
            log.debug("torch keeps %d inter-op threads", torch.get_num_interop_threads())


def claim_core(role: str, pin: str = "auto") -> Core | None:
    """Pin the calling thread to a core that no other process of ours has claimed.

    Args:
        role: who claims, for the log.
        pin: "on", "off", or "auto".

    Returns:
        The core; None when the thread is not pinned, which the log gives a reason for.
    """
    allowed = os.sched_getaffinity(0)
    if pin == "off":
        return None
    if torch.get_num_threads() > 1:
        log.info("%s: not pinned to a core: it computes with %d threads", role, torch.get_num_threads())
        return None
    for number in in_order(allowed):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(CLAIM.format(number))
        except OSError:
            claim.close()
            continue
        os.sched_setaffinity(0, {number})
        log.info("%s: pinned to core %d", role, number)
        return Core(number, claim, allowed)
    log.info("%s: not pinned to a core: others have claimed all %d", role, len(allowed))
    return None


def in_order(allowed: set[int], cpus: Path = CPUS) -> list[int]:
    """Allowed cores, the first thread of every physical core before any second one."""
    return sorted(allowed, key=lambda number: (_rank(number, allowed, cpus), number))


def _rank(number: int, allowed: set[int], cpus: Path) -> int:
    """How many allowed hardware threads of the same physical core come before this one."""
    try:
        listed = (cpus / f"cpu{number}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(sibling < number for sibling in _numbers(listed) & allowed)


def _numbers(listed: str) -> set[int]:
    """The numbers of a list as the kernel writes it, such as 0-2,8."""
    numbers: set[int] = set()
    for part in listed.strip().split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers

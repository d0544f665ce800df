"""Threads of a process, and a core of its own for the thread that computes.

A core is claimed by binding a Unix socket with its number in the name. The name is abstract: it exists as
long as the process, in no file system, for all users of the machine (to be exact, of the network namespace).
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CPUS = Path("/sys/devices/system/cpu")
CLAIM = "\0thinker-performer/core/{}"
SPACIOUS = 4  # cores from which on "auto" pins


def settle_threads(num_threads: int) -> None:
    """Let torch compute with so many threads, and run one operation at a time."""
    torch.set_num_threads(num_threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:  # something ran in parallel already: too late, and no harm
            log.debug("torch keeps %d inter-op threads", torch.get_num_interop_threads())


@contextmanager
def claim_core(role: str, pin: str = "auto") -> Iterator[int | None]:
    """Pin the calling thread, while the context is open, to a core that no other process of ours has claimed.

    Threads that it starts meanwhile are pinned with it.

    A pinned thread can't get out of the way: with two cores and one other busy process a pinned pair takes
    1.7 times as long as one that isn't. So "auto" pins where there are at least four cores, and leaves half
    of them (the second threads of physical cores, where there are such) to the rest.

    Yields the core's number; None when the thread is not pinned, which the log gives a reason for.
    """
    allowed = os.sched_getaffinity(0)
    cores = in_order(allowed)
    if pin == "auto":
        cores = cores[: len(cores) // 2]
    refusal = _refusal(pin, len(allowed))
    claim = None if refusal else _claim(cores)
    if claim is None:
        log.info("%s: not pinned to a core: %s", role, refusal or f"others have claimed all {len(cores)}")
        yield None
        return
    number, held = claim
    with held:
        os.sched_setaffinity(0, {number})
        log.info("%s: pinned to core %d", role, number)
        try:
            yield number
        finally:
            os.sched_setaffinity(0, allowed)


def _refusal(pin: str, num_cores: int) -> str | None:
    """Why a thread shall not be pinned, if so."""
    if pin == "off":
        return "pin = off"
    if pin == "auto" and num_cores < SPACIOUS:
        return f"there are only {num_cores}"
    if torch.get_num_threads() > 1:
        return f"it computes with {torch.get_num_threads()} threads"
    return None


def _claim(cores: list[int]) -> tuple[int, socket.socket] | None:
    """The first core that is free, and what holds it."""
    for number in cores:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(CLAIM.format(number))
        except OSError:
            held.close()
        else:
            return number, held
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

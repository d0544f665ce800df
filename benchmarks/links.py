"""The links: how long a message takes between two processes, beside two plain copies of the same memory."""

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.harness import spawned
from benchmarks.result import BenchResult
from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import missing
from shared.processes.rendezvous import HandshakeParams, RendezvousListener, accept_peers, join_peer
from shared.processes.roles import PERFORMER, THINKER
from shared.processes.secret import new_secret
from shared.slices import Kind, SliceHeader

KB, MB = 1 << 10, 1 << 20
SIZES = {"8 KB": 8 * KB, "64 KB": 64 * KB, "256 KB": 256 * KB, "1 MB": MB, "4 MB": 4 * MB, "16 MB": 16 * MB}
LINKS = ("shm", "gloo", "ccl")
COPIES = "two copies"
SHAPE = LinkShape(to_peer=16 * MB, from_peer=16 * MB)
ROUNDS = 10  # all links and the copies take turns, so that what else runs on the machine meets all of them
BYTES_A_ROUND = 64 * MB  # one way through each link, at most
MESSAGES_A_ROUND = (4, 100)  # at least, at most
SPIN_UP_S = 3.0
WITHIN_S = 60.0
ECHO, ACKNOWLEDGE, TAKE = range(3)  # what the other process does with a message: said as its layer

Key = tuple[str, str, str]
"""What was measured, over which link, of which size."""
Times = dict[Key, list[float]]
"""Microseconds."""


def bench(_args: argparse.Namespace, console: Console) -> BenchResult:
    """Measure with the cores idle, then with all of them busy."""
    lacking = {link: reason for link in LINKS if (reason := missing(link)) is not None}
    with ExitStack() as stack:
        ends = {link: stack.enter_context(_other_end(link)) for link in LINKS if link not in lacking}
        console.print(f"links {', '.join(ends)}")
        idle = _measure(ends)
        cores = len(os.sched_getaffinity(0))
        console.print(f"once more, beside {cores} processes that spin")
        with _busy(cores):
            busy = _measure(ends)
    rows = [
        {"µs": link, "size": size} | _figures("idle", link, size, idle) | _figures("busy", link, size, busy)
        for link in (COPIES, *ends)
        for size in SIZES
    ]
    notes = [
        "rt: round trip; 1-way: from before the copy into the link until after the copy out of it",
        "own: what that takes beyond these two copies; GB/s: one message after the other",
        *(f"{link} was not measured: {reason}" for link, reason in lacking.items()),
    ]
    return BenchResult(rows=rows, ratios=_ratios(idle, busy), notes=notes)


def _ratios(idle: Times, busy: Times) -> dict[str, float | None]:
    small = ("round trip", "shm", "8 KB")
    return {
        "shm_1mb_over_two_copies": _over(idle, ("one way", "shm", "1 MB"), ("one way", COPIES, "1 MB")),
        "shm_16mb_over_two_copies": _over(idle, ("one way", "shm", "16 MB"), ("one way", COPIES, "16 MB")),
        "shm_1mb_over_its_own_copies": _over(idle, ("one way", "shm", "1 MB"), ("its copies", "shm", "1 MB")),
        "shm_8kb_round_trip_us": _p50(idle, small),
        "shm_8kb_busy_over_idle": _p50(busy, small) / _p50(idle, small),
        "ccl_1mb_over_gloo": _over(idle, ("round trip", "ccl", "1 MB"), ("round trip", "gloo", "1 MB")),
    }


def _over(times: Times, one: Key, other: Key) -> float | None:
    return _p50(times, one) / _p50(times, other) if times[one] and times[other] else None


def _figures(name: str, link: str, size: str, times: Times) -> dict[str, str | float]:
    figures: dict[str, str | float] = {}
    for what, short in (("round trip", "rt"), ("one way", "1-way")):
        values = times[what, link, size]
        figures[f"{name} {short} p50"] = statistics.median(values) if values else ""
        figures[f"{short} p99 {name}"] = sorted(values)[int(0.99 * len(values))] if values else ""
    if link == COPIES:
        return figures | {f"{name} own": "", f"{name} GB/s": ""}
    figures[f"{name} own"] = _p50(times, ("one way", link, size)) - _p50(times, ("its copies", link, size))
    figures[f"{name} GB/s"] = SIZES[size] / _p50(times, ("stream", link, size)) / 1e3
    return figures


def _p50(times: Times, key: Key) -> float:
    return statistics.median(times[key])


def _measure(ends: dict[str, LinkEnd]) -> Times:
    times: Times = defaultdict(list)
    for size, num_bytes in SIZES.items():
        messages = min(max(BYTES_A_ROUND // num_bytes, MESSAGES_A_ROUND[0]), MESSAGES_A_ROUND[1])
        here, there = torch.ones(num_bytes, dtype=torch.uint8), torch.ones(num_bytes, dtype=torch.uint8)
        copies = Copies(num_bytes)
        for number in range(ROUNDS + 1):
            kept = times if number else defaultdict(list)  # the first warms up
            for link, end in ends.items():
                kept["round trip", link, size] += [_round_trip(end, here, there) for _ in range(messages)]
                ways = [_one_way(end, here) for _ in range(messages)]
                kept["one way", link, size] += [took for took, _ in ways]
                kept["its copies", link, size] += [took for _, took in ways]
                kept["stream", link, size].append(_stream(end, here, messages))
            kept["one way", COPIES, size] += [copies.time() for _ in range(messages)]
    return times


def _round_trip(end: LinkEnd, here: Tensor, there: Tensor) -> float:
    began = time.monotonic_ns()
    _send(end, here, ECHO)
    there.copy_(end.receiver.receive(WITHIN_S).payload)
    end.receiver.release()
    return (time.monotonic_ns() - began) / 1e3


def _one_way(end: LinkEnd, here: Tensor) -> tuple[float, float]:
    """Microseconds of a message and of the two copies that it consists of."""
    began = time.monotonic_ns()
    _send(end, here, ACKNOWLEDGE)
    answer = end.receiver.receive(WITHIN_S).header
    end.receiver.release()
    # Both processes are on one host, and so on one clock.
    return (answer.received_at_ns - began) / 1e3, (answer.append_ns + answer.solve_ns) / 1e3


def _stream(end: LinkEnd, here: Tensor, messages: int) -> float:
    """Microseconds a message when one follows the other."""
    began = time.monotonic_ns()
    for number in range(messages):
        _send(end, here, TAKE if number + 1 < messages else ACKNOWLEDGE)
    took_ns = end.receiver.receive(WITHIN_S).header.received_at_ns - began
    end.receiver.release()
    return took_ns / messages / 1e3


def _send(end: LinkEnd, payload: Tensor, then: int) -> None:
    room = end.sender.reserve(WITHIN_S)[: len(payload)]
    began = time.monotonic_ns()
    room.copy_(payload)
    header = SliceHeader(
        kind=Kind.STATE, session=0, layer=then, unit=0, payload_bytes=len(payload),
        append_ns=time.monotonic_ns() - began,
    )  # fmt: skip
    end.sender.send(header)


class Copies:
    """Two plain copies: what a message through shared memory can't be faster than."""

    def __init__(self, num_bytes: int) -> None:
        self._from, self._over, self._to = (torch.ones(num_bytes, dtype=torch.uint8) for _ in range(3))

    def time(self) -> float:
        """Microseconds."""
        began = time.monotonic_ns()
        self._over.copy_(self._from)
        self._to.copy_(self._over)
        return (time.monotonic_ns() - began) / 1e3


@contextmanager
def _other_end(link: str) -> Iterator[LinkEnd]:
    """A link to a process of its own that does what messages say."""
    params = HandshakeParams(secret=new_secret(), digest="bench", shape=SHAPE, link=link)
    with RendezvousListener("127.0.0.1", 0, secret=params.secret, role=THINKER) as listener:
        process = spawned(_answer, params, listener.port)
        try:
            with accept_peers(listener, params, timeout_s=WITHIN_S)["performer"] as end:
                yield end
                end.sender.reserve(WITHIN_S)
                end.sender.send(SliceHeader(kind=Kind.END, session=0, layer=TAKE, unit=0))
                process.join(WITHIN_S)
        finally:
            process.kill()
            process.join()


def _answer(params: HandshakeParams, port: int) -> None:
    torch.set_num_threads(1)
    with join_peer("127.0.0.1", port, params, role=PERFORMER, at=THINKER, timeout_s=WITHIN_S) as end:
        there = torch.ones(SHAPE.to_peer, dtype=torch.uint8)
        while _answer_next(end, there):
            pass


def _answer_next(end: LinkEnd, there: Tensor) -> bool:
    """Do what the next message says; its copy in comes back as `append_ns`, its copy out as `solve_ns`."""
    header, payload = end.receiver.receive(WITHIN_S * ROUNDS)
    num_bytes = header.payload_bytes if header.layer == ECHO else 0
    began = time.monotonic_ns()
    if num_bytes:
        end.sender.reserve(WITHIN_S)[:num_bytes].copy_(payload)
    else:
        there[: header.payload_bytes].copy_(payload)
    received_ns = time.monotonic_ns()
    end.receiver.release()
    if header.layer != TAKE:
        end.sender.reserve(WITHIN_S)
        answer = SliceHeader(
            kind=Kind.LATENTS, session=0, unit=0, payload_bytes=num_bytes,
            received_at_ns=received_ns, append_ns=header.append_ns, solve_ns=received_ns - began,
        )  # fmt: skip
        end.sender.send(answer)
    return header.kind is not Kind.END


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but use a core."""
    spinning: list[BaseProcess] = [spawned(_spin) for _ in range(processes)]
    try:
        time.sleep(SPIN_UP_S)
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        pass

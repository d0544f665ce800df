"""The links: how long a message takes between two processes, beside two plain copies of the same memory."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess

import torch
from rich.console import Console
from torch import Tensor

from scripts.bench import BenchResult
from scripts.benching import spawned
from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import missing
from shared.rendezvous import Listener, Terms, accept_performer, join_thinker
from shared.slices import Kind, SliceHeader

KB, MB = 1 << 10, 1 << 20
SIZES = {"8 KB": 8 * KB, "64 KB": 64 * KB, "256 KB": 256 * KB, "1 MB": MB, "4 MB": 4 * MB, "16 MB": 16 * MB}
LINKS = ("shm", "gloo", "ccl")
SHAPE = LinkShape(slice_bytes=16 * MB, latent_bytes=16 * MB)
ROUNDS = 10  # all links and the copies take turns, so that what else runs on the machine meets all of them
BYTES_A_ROUND = 200 * MB  # through each link, at most
MESSAGES_A_ROUND = (4, 100)  # at least, at most
WITHIN_S = 60.0
ECHO, ACKNOWLEDGE, TAKE = range(3)  # what the other process does with a message, as its epoch

Times = dict[tuple[str, str, str], list[float]]
"""Microseconds, by what was measured, link and size."""


def bench(_args: argparse.Namespace, console: Console) -> BenchResult:
    """Measure with the cores idle, then with all of them busy."""
    lacking = {link: reason for link in LINKS if (reason := missing(link)) is not None}
    with ExitStack() as stack:
        ends = {link: stack.enter_context(_other_end(link)) for link in LINKS if link not in lacking}
        console.print(f"links {', '.join(ends)}; round trips and messages one way, both copies counted")
        idle = _measure(ends)
        cores = len(os.sched_getaffinity(0))
        console.print(f"once more, with {cores} other processes that spin")
        with _busy(cores):
            busy = _measure(ends)
    rows = [_row(link, size, idle, busy) for link in ("two copies", *ends) for size in SIZES]
    return BenchResult(
        rows=rows,
        ratios=_ratios(idle, busy),
        notes=[f"{link}: not measured: {reason}" for link, reason in lacking.items()],
    )


def _ratios(idle: Times, busy: Times) -> dict[str, float | None]:
    def p50(times: Times, what: str, link: str, size: str) -> float | None:
        return statistics.median(times[what, link, size]) if times[what, link, size] else None

    def over(one: float | None, other: float | None) -> float | None:
        return one / other if one is not None and other is not None else None

    def over_copies(size: str) -> float | None:
        return over(p50(idle, "one way", "shm", size), p50(idle, "one way", "two copies", size))

    small = ("round trip", "shm", "8 KB")
    return {
        "shm_1mb_over_two_copies": over_copies("1 MB"),
        "shm_16mb_over_two_copies": over_copies("16 MB"),
        "shm_8kb_round_trip_us": p50(idle, *small),
        "ccl_1mb_over_gloo": over(
            p50(idle, "round trip", "ccl", "1 MB"), p50(idle, "round trip", "gloo", "1 MB")
        ),
        "shm_8kb_busy_over_idle": over(p50(busy, *small), p50(idle, *small)),
    }


def _row(link: str, size: str, idle: Times, busy: Times) -> dict[str, str | float]:
    row: dict[str, str | float] = {"µs": link, "size": size}
    for name, times in (("idle", idle), ("busy", busy)):
        for what in ("round trip", "one way"):
            values = times[what, link, size]
            row[f"{what} p50 {name}"] = statistics.median(values) if values else "-"
            row[f"p99 {name} {what}"] = _p99(values) if values else "-"
        values = times["stream", link, size]
        row[f"GB/s {name}"] = SIZES[size] / statistics.median(values) / 1e3 if values else "-"
    return row


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def _measure(ends: dict[str, LinkEnd]) -> Times:
    times: Times = defaultdict(list)
    for size, num_bytes in SIZES.items():
        messages = min(max(BYTES_A_ROUND // num_bytes // 3, MESSAGES_A_ROUND[0]), MESSAGES_A_ROUND[1])
        here, there = torch.ones(num_bytes, dtype=torch.uint8), torch.ones(num_bytes, dtype=torch.uint8)
        copies = Copies(num_bytes)
        for number in range(ROUNDS + 1):
            kept = times if number else defaultdict(list)  # the first warms up
            for link, end in ends.items():
                kept["round trip", link, size] += [_round_trip(end, here, there) for _ in range(messages)]
                kept["one way", link, size] += [_one_way(end, here) for _ in range(messages)]
                kept["stream", link, size].append(_stream(end, here, messages))
            kept["one way", "two copies", size] += [copies.time() for _ in range(messages)]
    return times


def _round_trip(end: LinkEnd, here: Tensor, there: Tensor) -> float:
    began = time.monotonic_ns()
    _send(end, here, ECHO)
    there.copy_(end.receiver.receive(WITHIN_S).payload)
    end.receiver.release()
    return (time.monotonic_ns() - began) / 1e3


def _one_way(end: LinkEnd, here: Tensor) -> float:
    """From before the copy into the link until after the copy out of it: both clocks are the host's."""
    began = time.monotonic_ns()
    _send(end, here, ACKNOWLEDGE)
    took_ns = end.receiver.receive(WITHIN_S).header.received_at_ns - began
    end.receiver.release()
    return took_ns / 1e3


def _stream(end: LinkEnd, here: Tensor, messages: int) -> float:
    """Microseconds a message when one follows the other."""
    began = time.monotonic_ns()
    for number in range(messages):
        _send(end, here, TAKE if number + 1 < messages else ACKNOWLEDGE)
    took_ns = end.receiver.receive(WITHIN_S).header.received_at_ns - began
    end.receiver.release()
    return took_ns / messages / 1e3


def _send(end: LinkEnd, payload: Tensor, then: int) -> None:
    end.sender.reserve(WITHIN_S)[: len(payload)].copy_(payload)
    end.sender.commit(SliceHeader(kind=Kind.STATE, session=0, epoch=then, unit=0, payload_bytes=len(payload)))


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
    terms = Terms(digest="bench", shape=SHAPE, link=link)
    with Listener("127.0.0.1", 0) as listener:
        process = spawned(_answer, terms, listener.port)
        try:
            with accept_performer(listener, terms, timeout_s=WITHIN_S) as end:
                yield end
                end.sender.reserve(WITHIN_S)
                end.sender.commit(SliceHeader(kind=Kind.END, session=0, epoch=TAKE, unit=0))
                process.join(WITHIN_S)
        finally:
            process.kill()
            process.join()


def _answer(terms: Terms, port: int) -> None:
    torch.set_num_threads(1)
    with join_thinker("127.0.0.1", port, terms, timeout_s=WITHIN_S) as end:
        there = torch.ones(SHAPE.slice_bytes, dtype=torch.uint8)
        while _answer_next(end, there):
            pass


def _answer_next(end: LinkEnd, there: Tensor) -> bool:
    header, payload = end.receiver.receive(WITHIN_S * 10)
    num_bytes = 0
    if header.epoch == ECHO:
        num_bytes = header.payload_bytes
        end.sender.reserve(WITHIN_S)[:num_bytes].copy_(payload)
    else:
        there[: header.payload_bytes].copy_(payload)
    received_ns = time.monotonic_ns()
    end.receiver.release()
    if header.epoch != TAKE:
        end.sender.reserve(WITHIN_S)
        end.sender.commit(
            SliceHeader(
                kind=Kind.LATENTS,
                session=0,
                epoch=0,
                unit=0,
                payload_bytes=num_bytes,
                received_at_ns=received_ns,
            )  # fmt: skip
        )
    return header.kind is not Kind.END


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but use a core."""
    spinning: list[BaseProcess] = [spawned(_spin) for _ in range(processes)]
    try:
        time.sleep(3)
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        pass

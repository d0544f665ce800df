"""Links to test: to a Performer in a process of its own, or in a thread for the loopback."""

import multiprocessing
import runpy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import missing
from shared.links.loopback import loopback_pair
from shared.slices import Kind

ENDS = Path(__file__).with_name("ends.py")
SHAPE = LinkShape(to_peer=100_003, from_peer=100_003, depth=3)
TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Facing:
    """The Thinker's end of a link, and the Performer at the other; None where that is a thread."""

    end: LinkEnd
    performer: BaseProcess | None

    def send(self, message: bytes, kind: Kind = Kind.STATE) -> None:
        buffer = self.end.sender.reserve(TIMEOUT_S)
        if message:
            buffer[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        self.end.sender.send(ends.header_of(len(message), kind=kind))

    def receive(self) -> bytes:
        message = bytes(self.end.receiver.receive(TIMEOUT_S).payload.numpy())
        self.end.receiver.release()
        return message

    def fill(self, num_messages: int, timeout_s: float, payload_bytes: int = 1) -> None:
        for unit in range(num_messages):
            self.end.sender.reserve(timeout_s, f"state slice of unit {unit}")
            self.end.sender.send(ends.header_of(payload_bytes))

    def kill(self) -> None:
        """Kill the Performer."""
        if self.performer is None:
            self.end.peer.hang_up()
        else:
            self.performer.kill()


@dataclass(frozen=True, kw_only=True)
class Couple:
    """Thinker and Performer, both in processes of their own."""

    thinker: BaseProcess
    performer: BaseProcess
    pids: tuple[int | None, int | None]


@pytest.fixture(scope="session")
def facing() -> Callable[..., AbstractContextManager[Facing]]:
    """`with facing(link, role, shape) as setting:` a Performer that plays a role of `ends.py`."""

    @contextmanager
    def face(link: str, role: str, shape: LinkShape = SHAPE) -> Iterator[Facing]:
        need(link)
        with a_thread(role, shape) if link == "loopback" else a_process(link, role, shape) as setting:
            yield setting

    return face


@pytest.fixture(scope="session")
def couple() -> Callable[..., AbstractContextManager[Couple]]:
    """`with couple(link, shape, thinker=role, performer=role) as both:` once messages flow."""

    @contextmanager
    def pair(link: str, shape: LinkShape, *, thinker: str, performer: str) -> Iterator[Couple]:
        need(link)
        here, there = multiprocessing.Pipe()
        with here, there:
            one = started("think", there, link, shape, thinker)
            other = started("perform", here.recv(), link, shape, performer, there)
            try:
                here.recv()
                here.recv()
                yield Couple(thinker=one, performer=other, pids=(one.pid, other.pid))
            finally:
                ended(one)
                ended(other)

    return pair


def need(link: str) -> None:
    if link not in {"loopback", "collective"} and (reason := missing(link)):
        pytest.skip(f"{link}: {reason}")


@contextmanager
def a_thread(role: str, shape: LinkShape) -> Iterator[Facing]:
    thinker_end, performer_end = loopback_pair(shape)

    def perform() -> None:
        with performer_end:
            ends.play(role, performer_end)

    thread = threading.Thread(target=perform)
    thread.start()
    try:
        with thinker_end:
            yield Facing(end=thinker_end, performer=None)
    finally:
        thread.join(TIMEOUT_S)


@contextmanager
def a_process(link: str, role: str, shape: LinkShape) -> Iterator[Facing]:
    with ends.listening(link) as listener:
        performer = started("perform", listener.port, link, shape, role)
        try:
            with ends.accept(listener, link, shape) as end:
                assert end.kind == link
                yield Facing(end=end, performer=performer)
        finally:
            ended(performer)


def started(work: str, *arguments: Any) -> BaseProcess:
    """A process that does a work of `ends.py`."""
    script = {"WORK": work, "WITH": arguments}
    process = processes().Process(target=runpy.run_path, args=(str(ENDS), script))
    process.start()
    return process


def processes() -> ForkServerContext:
    """Where they come from: one that has read torch, which takes longer than any test here."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shared.processes.rendezvous"])
    return context


def ended(process: BaseProcess) -> None:
    process.kill()
    process.join()
    process.close()


ends = SimpleNamespace(**runpy.run_path(str(ENDS)))

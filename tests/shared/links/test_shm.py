"""How the link over shared memory is set up: what a fault leaves behind, and who may join."""

import gc
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared.errors import LinkUnavailable
from shared.links.base import LinkShape
from shared.links.peer import Peer
from shared.links.shm import ShmOffer, join_shm

SHAPE = LinkShape(to_peer=1000, from_peer=500, depth=2)
TIMEOUT_S = 30.0

Peers = tuple[Peer, Peer]


@pytest.fixture
def peers() -> Iterator[Peers]:
    """The joining side as the listening one sees it, and the other way round."""
    here, there = socket.socketpair()
    with Peer("performer", here) as performer, Peer("thinker", there) as thinker:
        yield performer, thinker


def descriptors() -> set[tuple[str, str]]:
    return {(fd.name, str(fd.readlink())) for fd in Path("/proc/self/fd").iterdir() if fd.exists()}


def failing_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose call of that number fails as in a process without descriptors."""
    calls = iter(range(1, 100))

    def fail(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise OSError(24, "Too many open files")
        return function(*arguments, **options)

    return fail


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [(mmap, "mmap", 1), (os, "ftruncate", 1), *((os, "eventfd", call) for call in (1, 2, 3, 4))],
)
def test_an_offer_that_fails_leaves_no_descriptor(
    owner: Any, name: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    monkeypatch.setattr(owner, name, failing_at(call, getattr(owner, name)))
    with pytest.raises(OSError, match="Too many open files"):
        ShmOffer(SHAPE)
    assert descriptors() == before


@pytest.mark.parametrize(("owner", "name"), [(mmap, "mmap"), (os, "set_inheritable")])
def test_joining_that_fails_leaves_no_descriptor(
    owner: Any, name: str, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    performer, thinker = peers
    with closing(ShmOffer(SHAPE)) as offer, ThreadPoolExecutor(1) as thread:
        opened = thread.submit(offer.open, performer, TIMEOUT_S)
        before = descriptors()
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, failing_at(1, getattr(owner, name)))
            with pytest.raises(OSError, match="Too many open files"):
                join_shm(offer.address, SHAPE.reversed, thinker, TIMEOUT_S)
        end = opened.result(TIMEOUT_S)
        left = {name for name, _ in descriptors()} - {name for name, _ in before}
        assert not left
        end.close()


def test_an_offer_that_no_one_joins_closes_everything(peers: Peers) -> None:
    before = descriptors()
    performer, thinker = peers
    with closing(ShmOffer(SHAPE)) as offer:
        with pytest.raises(TimeoutError, match="it did not join in time"):
            offer.open(performer, 0.01)
        thinker.hang_up()
        with pytest.raises(ConnectionError, match="it hung up"):
            offer.open(performer, TIMEOUT_S)
    del offer  # with it the mapping, which has a descriptor of its own
    gc.collect()
    assert descriptors() == before


def other_user_first(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The first so many checks take the other side for a process of another user."""
    users = iter([os.getuid() + 1] * times)
    monkeypatch.setattr(os, "getuid", lambda real=os.getuid: next(users, None) or real())


def test_another_user_is_hung_up_on_and_the_peer_still_joins(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    performer, thinker = peers
    with (
        closing(ShmOffer(SHAPE)) as offer,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger,
        ThreadPoolExecutor(1) as thread,
    ):
        stranger.connect(f"\0{offer.address}")
        other_user_first(monkeypatch, 1)
        opened = thread.submit(offer.open, performer, TIMEOUT_S)
        assert stranger.recv(1) == b"", "it is told nothing"
        with join_shm(offer.address, SHAPE.reversed, thinker, TIMEOUT_S), opened.result(TIMEOUT_S) as end:
            assert (end.sender.max_bytes, end.receiver.max_bytes) == (SHAPE.to_peer, SHAPE.from_peer)


def test_a_peer_of_another_user_is_told_on_both_sides(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    performer, thinker = peers
    other_user_first(monkeypatch, 2)
    with closing(ShmOffer(SHAPE)) as offer, ThreadPoolExecutor(1) as thread:
        opened = thread.submit(offer.open, performer, TIMEOUT_S)
        match = "link shm: this process runs as user .*, the other side as user"
        with pytest.raises(LinkUnavailable, match=match):
            join_shm(offer.address, SHAPE.reversed, thinker, TIMEOUT_S)
        thinker.close()
        with pytest.raises(LinkUnavailable, match=match):
            opened.result(TIMEOUT_S)

"""Both sides in one process, on two threads: what they say does not depend on where they run."""

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pytest

from shared.errors import ConfigError, LinkUnavailable, RendezvousError
from shared.handshake import VERSION, PeerHello, host_identity
from shared.links.base import LinkEnd, LinkShape
from shared.rendezvous import HandshakeParams, RendezvousListener, accept_performer, join_thinker
from shared.slices import Kind, SliceHeader

HOST = "127.0.0.1"
PATIENCE_S = 30.0
SHAPE = LinkShape(slice_bytes=1000, latent_bytes=500, depth=2)
TERMS = HandshakeParams(digest="same", shape=SHAPE)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=4) as executor:
        yield executor


@pytest.fixture
def listener() -> Iterator[RendezvousListener]:
    with RendezvousListener(HOST, 0) as listener:
        yield listener


def accept(
    threads: ThreadPoolExecutor, listener: RendezvousListener, terms: HandshakeParams = TERMS
) -> Future[LinkEnd]:
    return threads.submit(accept_performer, listener, terms, timeout_s=PATIENCE_S)


def join(threads: ThreadPoolExecutor, port: int, terms: HandshakeParams = TERMS) -> Future[LinkEnd]:
    return threads.submit(join_thinker, HOST, port, terms, timeout_s=PATIENCE_S)


def check_it_works(thinker_end: LinkEnd, performer_end: LinkEnd) -> None:
    for one, other, number in ((thinker_end, performer_end, 1), (performer_end, thinker_end, 2)):
        one.sender.reserve(PATIENCE_S)[:5].fill_(number)
        one.sender.send(SliceHeader(kind=Kind.STATE, session=1, epoch=0, unit=number, payload_bytes=5))
        header, payload = other.receiver.receive(PATIENCE_S)
        assert (header.unit, payload.tolist()) == (number, 5 * [number])
        other.receiver.release()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_thinker_first(
    threads: ThreadPoolExecutor, listener: RendezvousListener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        thinker = accept(threads, listener)
        performer = join(threads, listener.port)
        with thinker.result() as thinker_end, performer.result() as performer_end:
            assert (thinker_end.kind, performer_end.kind) == ("shm", "shm")
            check_it_works(thinker_end, performer_end)
    assert f"waiting for the performer at {HOST}:{listener.port}" in caplog.text
    assert f"waiting for the thinker at {HOST}:{listener.port}" in caplog.text
    assert "link shm, chosen because the two processes are on one host" in caplog.text
    assert "link shm, chosen by the thinker" in caplog.text


def test_performer_first(threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.INFO):
        performer = join(threads, port)
        while "waiting for the thinker" not in caplog.text:
            assert not performer.done()
        with (
            RendezvousListener(HOST, port) as listener,
            accept(threads, listener).result() as thinker_end,
            performer.result() as performer_end,
        ):
            check_it_works(thinker_end, performer_end)


def test_over_gloo_when_one_side_asks_for_it(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    thinker = accept(threads, listener)
    performer = join(threads, listener.port, HandshakeParams(digest="same", shape=SHAPE, link="gloo"))
    with thinker.result() as thinker_end, performer.result() as performer_end:
        assert (thinker_end.kind, performer_end.kind) == ("gloo", "gloo")
        check_it_works(thinker_end, performer_end)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (
            HandshakeParams(digest="other", shape=SHAPE),
            "digest is same at the thinker and other at the performer",
        ),
        (
            HandshakeParams(digest="same", shape=LinkShape(slice_bytes=1001, latent_bytes=500, depth=2)),
            "slice_bytes is 1000 at the thinker and 1001 at the performer",
        ),
        (
            HandshakeParams(digest="same", shape=LinkShape(slice_bytes=1000, latent_bytes=500, depth=3)),
            "depth is 2 at the thinker and 3 at the performer",
        ),
    ],
)
def test_different_terms_are_named_on_both_sides_and_the_thinker_waits_on(
    threads: ThreadPoolExecutor,
    listener: RendezvousListener,
    caplog: pytest.LogCaptureFixture,
    terms: HandshakeParams,
    message: str,
) -> None:
    thinker = accept(threads, listener)
    with pytest.raises(RendezvousError, match=message) as refused:
        join(threads, listener.port, terms).result()
    corrected = join(threads, listener.port)
    with thinker.result() as thinker_end, corrected.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert errors(caplog) == [str(refused.value)]


def test_different_links_are_named_on_both_sides_and_the_thinker_waits_on(
    threads: ThreadPoolExecutor, listener: RendezvousListener, caplog: pytest.LogCaptureFixture
) -> None:
    thinker = accept(threads, listener, HandshakeParams(digest="same", shape=SHAPE, link="shm"))
    message = "thinker was started with link shm, the performer with gloo"
    with pytest.raises(LinkUnavailable, match=message) as refused:
        join(threads, listener.port, HandshakeParams(digest="same", shape=SHAPE, link="gloo")).result()
    corrected = join(threads, listener.port)
    with thinker.result() as thinker_end, corrected.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert errors(caplog) == [str(refused.value)]


def test_who_only_ever_meets_other_terms_gives_up_in_time(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    stop = threading.Event()
    thinker = threads.submit(accept_performer, listener, TERMS, stop=stop)
    with pytest.raises(RendezvousError, match="digest is same at the thinker"):
        join(threads, listener.port, HandshakeParams(digest="other", shape=SHAPE)).result()
    stop.set()
    with pytest.raises(RendezvousError, match="stopped while waiting for the performer"):
        thinker.result()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_link_that_is_not_here_is_refused_before_anyone_waits(listener: RendezvousListener) -> None:
    with pytest.raises(LinkUnavailable, match="link nccl is not available"):
        accept_performer(listener, HandshakeParams(digest="same", shape=SHAPE, link="nccl"))
    with pytest.raises(ConfigError, match="unknown name 'pigeon'"):
        join_thinker(HOST, 1, HandshakeParams(digest="same", shape=SHAPE, link="pigeon"))


def test_each_side_sees_the_other_go(threads: ThreadPoolExecutor, listener: RendezvousListener) -> None:
    for leaver in (0, 1):
        ends = [accept(threads, listener), join(threads, listener.port)]
        with ends[leaver].result() as leaving, ends[1 - leaver].result() as staying:
            assert not staying.peer.gone()
            leaving.close()
            assert staying.receiver.wait(PATIENCE_S)
            assert staying.peer.gone()


def test_another_performer_can_follow(threads: ThreadPoolExecutor, listener: RendezvousListener) -> None:
    for _ in range(3):
        thinker = accept(threads, listener)
        performer = join(threads, listener.port)
        with thinker.result() as thinker_end, performer.result() as performer_end:
            check_it_works(thinker_end, performer_end)


def hello_of_another_version() -> bytes:
    return framed(b'{"type":"thinker-performer hello","version":1}')


def hello_of(link: str) -> PeerHello:
    return PeerHello(
        version=VERSION,
        digest="same",
        slice_bytes=1000,
        latent_bytes=500,
        depth=2,
        link=link,
        device="cpu",
        available=("shm",),
        host=host_identity(),
    )


def forged(field: str) -> bytes:
    """A hello that would write a line of its own into the log."""
    hello = msgspec.to_builtins(hello_of("shm"))
    return framed(msgspec.json.encode({**hello, field: "x\nthinker: FORGED"}))


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<I", 2**32 - 1) + b"x" * 1000,
        framed(b"not json"),
        framed(b"\xff\xfe"),
        framed(b"[1, 2]"),
        hello_of_another_version(),
        framed(b'{"type":"thinker-performer hello","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        forged("digest"),
        forged("type"),
        forged("device"),
    ],
    ids=[
        "nothing",
        "half a length",
        "http",
        "a lying length",
        "no json",
        "no utf-8",
        "no struct",
        "half a hello",
        "nested too deep",
        "a forged digest",
        "a forged type",
        "a forged device",
    ],
)
def test_strangers_are_turned_away_and_the_performer_still_comes(
    threads: ThreadPoolExecutor,
    listener: RendezvousListener,
    caplog: pytest.LogCaptureFixture,
    garbage: bytes,
) -> None:
    with socket.create_connection((HOST, listener.port)) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        thinker = accept(threads, listener)
        performer = join(threads, listener.port)
        with thinker.result() as thinker_end, performer.result() as performer_end:
            check_it_works(thinker_end, performer_end)
    assert "turned away a caller that is no performer" in caplog.text
    assert "\nthinker: FORGED" not in caplog.text


def test_a_silent_stranger_does_not_hold_up_the_performer(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    with socket.create_connection((HOST, listener.port)):
        thinker = accept(threads, listener)
        performer = join(threads, listener.port)
        with thinker.result() as thinker_end, performer.result() as performer_end:
            check_it_works(thinker_end, performer_end)


def test_a_performer_that_dies_while_the_link_is_opened_is_followed_by_another(
    threads: ThreadPoolExecutor, listener: RendezvousListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.rendezvous._OPENING_S", 0.2)
    with socket.create_connection((HOST, listener.port)) as short_lived:
        short_lived.sendall(framed(msgspec.json.encode(hello_of("shm"))))
    thinker = accept(threads, listener)
    performer = join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)


def test_a_performer_calls_again_when_the_thinker_went(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    performer = join(threads, listener.port)
    while (connection := listener.accept(PATIENCE_S)) is None:
        pass
    connection.close()
    with accept(threads, listener).result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)


def test_what_answers_but_is_no_thinker_is_an_error(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    performer = join(threads, listener.port)
    while (connection := listener.accept(PATIENCE_S)) is None:
        pass
    with connection:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(RendezvousError, match=f"what answers at {HOST}:{listener.port} is no thinker"):
            performer.result()


def test_a_port_in_use_is_one_clear_error(listener: RendezvousListener) -> None:
    with pytest.raises(RendezvousError, match=rf"can't listen on {HOST}:{listener.port}: .*in use"):
        RendezvousListener(HOST, listener.port)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_can_not_be_is_an_error(port: int) -> None:
    with pytest.raises(RendezvousError, match=f"must be 0 to 65535, got {port}"):
        RendezvousListener(HOST, port)
    with pytest.raises(RendezvousError, match=f"must be 1 to 65535, got {port}"):
        join_thinker(HOST, port, TERMS, timeout_s=0.1)


def test_a_host_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RendezvousError, match="there is no host 'no such host'"):
        join_thinker("no such host", 1, TERMS)


def test_time_outs_say_who_was_missing(listener: RendezvousListener) -> None:
    with pytest.raises(
        RendezvousError, match=rf"performer at {HOST}:{listener.port} was not there within 0\.05 s"
    ):
        accept_performer(listener, TERMS, timeout_s=0.05)
    port = free_port()
    with pytest.raises(RendezvousError, match=rf"thinker at {HOST}:{port} was not there within 0\.05 s"):
        join_thinker(HOST, port, TERMS, timeout_s=0.05)
    # A thinker that listens but is busy is waited for, too, and not longer.
    with pytest.raises(
        RendezvousError, match=rf"thinker at {HOST}:{listener.port} was not there within 0\.05 s"
    ):
        join_thinker(HOST, listener.port, TERMS, timeout_s=0.05)


def test_both_sides_can_be_stopped(threads: ThreadPoolExecutor, listener: RendezvousListener) -> None:
    stop = threading.Event()
    waiting = [
        threads.submit(accept_performer, listener, TERMS, stop=stop),
        threads.submit(join_thinker, HOST, free_port(), TERMS, stop=stop),
    ]
    started = time.monotonic()
    stop.set()
    for side in waiting:
        with pytest.raises(RendezvousError, match=r"stopped while waiting for the (performer|thinker)"):
            side.result()
    assert time.monotonic() - started < PATIENCE_S

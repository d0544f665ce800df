"""Both sides in one process, on two threads: what they say does not depend on where they run."""

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shared.errors import ConfigError, LinkUnavailable, RendezvousError
from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import Capabilities
from shared.links.peer import host_identity
from shared.processes.handshake import (
    VERSION,
    Challenge,
    HandshakeConnection,
    HandshakeError,
    LinkParams,
    Proof,
    Refused,
    Welcome,
)
from shared.processes.rendezvous import HandshakeParams, RendezvousListener, accept_peers, join_peer
from shared.processes.roles import PERFORMER, THINKER
from shared.slices import Kind, SliceHeader

HOST = "127.0.0.1"
PATIENCE_S = 30.0
SHAPE = LinkShape(to_peer=1000, from_peer=500, depth=2)
SECRET = "of these tests and nobody else"
PARAMS = HandshakeParams(secret=SECRET, digest="same", shape=SHAPE)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=4) as executor:
        yield executor


@pytest.fixture
def listener() -> Iterator[RendezvousListener]:
    with RendezvousListener(HOST, 0, secret=SECRET, role=THINKER) as listener:
        yield listener


def failed(side: Future[LinkEnd]) -> bool:
    return side.exception(PATIENCE_S) is not None


def accepted(listener: RendezvousListener, params: HandshakeParams, **options: Any) -> LinkEnd:
    return accept_peers(listener, params, **options)["performer"]


def joined(host: str, port: int, params: HandshakeParams, **options: Any) -> LinkEnd:
    return join_peer(host, port, params, role=PERFORMER, at=THINKER, **options)


def accept(
    threads: ThreadPoolExecutor, listener: RendezvousListener, params: HandshakeParams = PARAMS
) -> Future[LinkEnd]:
    return threads.submit(accepted, listener, params, timeout_s=PATIENCE_S)


def join(threads: ThreadPoolExecutor, port: int, params: HandshakeParams = PARAMS) -> Future[LinkEnd]:
    return threads.submit(joined, HOST, port, params, timeout_s=PATIENCE_S)


def check_it_works(thinker_end: LinkEnd, performer_end: LinkEnd) -> None:
    for one, other, number in ((thinker_end, performer_end, 1), (performer_end, thinker_end, 2)):
        one.sender.reserve(PATIENCE_S)[:5].fill_(number)
        one.sender.send(SliceHeader(kind=Kind.STATE, session=1, unit=number, payload_bytes=5))
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
            RendezvousListener(HOST, port, secret=SECRET, role=THINKER) as listener,
            accept(threads, listener).result() as thinker_end,
            performer.result() as performer_end,
        ):
            check_it_works(thinker_end, performer_end)


def test_over_gloo_when_one_side_asks_for_it(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    thinker = accept(threads, listener)
    performer = join(
        threads, listener.port, HandshakeParams(secret=SECRET, digest="same", shape=SHAPE, link="gloo")
    )
    with thinker.result() as thinker_end, performer.result() as performer_end:
        assert (thinker_end.kind, performer_end.kind) == ("gloo", "gloo")
        check_it_works(thinker_end, performer_end)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            HandshakeParams(secret=SECRET, digest="other", shape=SHAPE),
            "digest is same at the thinker and other at the performer",
        ),
        (
            HandshakeParams(
                secret=SECRET, digest="same", shape=LinkShape(to_peer=1001, from_peer=500, depth=2)
            ),
            "to_peer is 1000 at the thinker and 1001 at the performer",
        ),
        (
            HandshakeParams(
                secret=SECRET, digest="same", shape=LinkShape(to_peer=1000, from_peer=500, depth=3)
            ),
            "depth is 2 at the thinker and 3 at the performer",
        ),
    ],
)
def test_different_params_are_named_on_both_sides_and_the_thinker_waits_on(
    threads: ThreadPoolExecutor,
    listener: RendezvousListener,
    caplog: pytest.LogCaptureFixture,
    params: HandshakeParams,
    message: str,
) -> None:
    thinker = accept(threads, listener)
    with pytest.raises(RendezvousError, match=message) as refused:
        join(threads, listener.port, params).result()
    corrected = join(threads, listener.port)
    with thinker.result() as thinker_end, corrected.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert errors(caplog) == [str(refused.value)]


def test_different_links_are_named_on_both_sides_and_the_thinker_waits_on(
    threads: ThreadPoolExecutor, listener: RendezvousListener, caplog: pytest.LogCaptureFixture
) -> None:
    thinker = accept(
        threads, listener, HandshakeParams(secret=SECRET, digest="same", shape=SHAPE, link="shm")
    )
    message = "thinker was started with link shm, the performer with gloo"
    with pytest.raises(LinkUnavailable, match=message) as refused:
        join(
            threads, listener.port, HandshakeParams(secret=SECRET, digest="same", shape=SHAPE, link="gloo")
        ).result()
    corrected = join(threads, listener.port)
    with thinker.result() as thinker_end, corrected.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert errors(caplog) == [str(refused.value)]


def test_who_only_ever_meets_other_params_gives_up_in_time(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    stop = threading.Event()
    thinker = threads.submit(accepted, listener, PARAMS, stop=stop)
    with pytest.raises(RendezvousError, match="digest is same at the thinker"):
        join(threads, listener.port, HandshakeParams(secret=SECRET, digest="other", shape=SHAPE)).result()
    stop.set()
    with pytest.raises(RendezvousError, match="stopped while waiting for the performer"):
        thinker.result()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_link_that_is_not_here_is_refused_before_anyone_waits(listener: RendezvousListener) -> None:
    with pytest.raises(LinkUnavailable, match="link nccl is not available"):
        accepted(listener, HandshakeParams(secret=SECRET, digest="same", shape=SHAPE, link="nccl"))
    with pytest.raises(ConfigError, match="unknown name 'pigeon'"):
        joined(HOST, 1, HandshakeParams(secret=SECRET, digest="same", shape=SHAPE, link="pigeon"))


@pytest.mark.parametrize("leaver", [0, 1])
def test_each_side_sees_the_other_go(
    threads: ThreadPoolExecutor, listener: RendezvousListener, leaver: int
) -> None:
    ends = [accept(threads, listener), join(threads, listener.port)]
    with ends[leaver].result() as leaving, ends[1 - leaver].result() as staying:
        assert not staying.peer.gone()
        leaving.close()
        assert staying.receiver.wait(PATIENCE_S)
        assert staying.peer.gone()


def test_a_second_performer_is_told_that_the_place_is_taken(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    thinker, performer = accept(threads, listener), join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        with pytest.raises(RendezvousError, match="rendezvous: another performer has that place already"):
            joined(HOST, listener.port, PARAMS, timeout_s=PATIENCE_S)
        check_it_works(thinker_end, performer_end)


def test_of_two_performers_at_once_one_is_told_that_the_place_is_taken(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    """Both have proven themselves before the Thinker looks."""
    performers = [join(threads, listener.port) for _ in range(2)]
    while listener._callers.qsize() < 2:
        time.sleep(0.01)
    thinker = accept(threads, listener)
    with thinker.result() as thinker_end:
        (refused,) = [performer for performer in performers if failed(performer)]
        performers.remove(refused)
        with pytest.raises(RendezvousError, match="another performer has that place already"):
            refused.result()
        with performers[0].result() as performer_end:
            check_it_works(thinker_end, performer_end)


def test_who_is_not_expected_is_told(listener: RendezvousListener) -> None:
    with pytest.raises(RendezvousError, match="rendezvous: no thinker is expected here"):
        join_peer(HOST, listener.port, PARAMS, role=THINKER, at=THINKER, timeout_s=PATIENCE_S)


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
        framed(b'{"type":"thinker-performer hello","version":2}'),
        framed(b'{"type":"proof","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        framed(b'{"type":"proof","role":"x\\nthinker: FORGED","nonce":"","mac":""}'),
    ],
    ids=[
        "nothing", "half a length", "http", "a lying length", "no json", "no utf-8", "no struct",
        "an older version", "nested too deep", "a forged role",
    ],
)  # fmt: skip
def test_strangers_are_turned_away_and_the_performer_still_comes(
    threads: ThreadPoolExecutor,
    listener: RendezvousListener,
    caplog: pytest.LogCaptureFixture,
    garbage: bytes,
) -> None:
    with socket.create_connection((HOST, listener.port)) as stranger:
        with suppress(OSError):  # who is turned away may be hung up on before it is done
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
        everything_from(stranger)
    thinker = accept(threads, listener)
    performer = join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert "turned away a caller that is no performer" in caplog.text
    assert "\nthinker: FORGED" not in caplog.text


def everything_from(line: socket.socket) -> bytes:
    line.settimeout(PATIENCE_S)
    received = b""
    with suppress(ConnectionError):
        while part := line.recv(4096):
            received += part
    return received


@pytest.mark.parametrize("secret", ["another secret than the thinker's", ""])
def test_who_does_not_know_the_secret_gets_no_link(
    threads: ThreadPoolExecutor, listener: RendezvousListener, caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    thinker = accept(threads, listener)
    stranger = replace(PARAMS, secret=secret, link="gloo")
    with pytest.raises(RendezvousError, match="rendezvous: the secret is another one there"):
        joined(HOST, listener.port, stranger, timeout_s=PATIENCE_S)
    performer = join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert "it does not know the secret" in caplog.text


def test_a_stranger_learns_a_version_and_a_random_number(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    """Who calls and goes on as if it knew the secret is told nothing of digest, sizes, link, address."""
    stop = threading.Event()
    thinker = threads.submit(accepted, listener, PARAMS, stop=stop)
    with socket.create_connection((HOST, listener.port)) as line:
        stranger = HandshakeConnection(line)
        challenge: Challenge = stranger.receive(Challenge, PATIENCE_S)
        stranger.send(Proof(role="performer", nonce="0" * 64, mac="0" * 64))
        answer: Refused = stranger.receive(Refused, PATIENCE_S)
        assert answer == Refused(reason="secret")
        with suppress(ConnectionError):
            stranger.send(link_params("gloo"))
        assert everything_from(line) == b""
    assert challenge.version == VERSION
    stop.set()
    with pytest.raises(RendezvousError, match="stopped"):
        thinker.result()


def test_a_recorded_proof_does_not_fit_again(listener: RendezvousListener) -> None:
    recorded = recorded_proof(listener)
    with socket.create_connection((HOST, listener.port)) as line:
        again = HandshakeConnection(line)
        again.receive(Challenge, PATIENCE_S)
        again.send(recorded)
        assert again.receive(Refused, PATIENCE_S) == Refused(reason="secret")


def recorded_proof(listener: RendezvousListener) -> Proof:
    """What one who listens in sees of a real Performer's call."""
    with socket.create_connection((HOST, listener.port)) as line:
        real = HandshakeConnection(line)
        sent: list[Any] = []
        send = real.send
        real.send = lambda message: (sent.append(message), send(message))[1]  # type: ignore[method-assign]
        real.introduce(SECRET, "performer", PATIENCE_S)
    return sent[0]


def test_a_reflected_challenge_opens_nothing(listener: RendezvousListener) -> None:
    """A false Thinker asks the real one the question that it was asked, and can't use the answer."""
    with socket.create_connection((HOST, listener.port)) as line, socket.create_server((HOST, 0)) as false:
        real = HandshakeConnection(line)
        challenge = real.receive(Challenge, PATIENCE_S)
        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(joined, HOST, false.getsockname()[1], PARAMS, timeout_s=PATIENCE_S)
            caller = HandshakeConnection(false.accept()[0])
            caller.send(challenge)
            proof: Proof = caller.receive(Proof, PATIENCE_S)
            caller.send(Welcome(mac=proof.mac))  # what it knows of the secret
            with pytest.raises(RendezvousError, match="does not know the secret"):
                calling.result()
            caller.line.close()


def test_what_is_altered_between_the_two_is_noticed() -> None:
    one, other = socket.socketpair()
    caller, listening = HandshakeConnection(one), HandshakeConnection(other)
    with one, other, ThreadPoolExecutor(1) as pool:
        admitted = pool.submit(listening.admit, SECRET, PATIENCE_S)
        caller.introduce(SECRET, "performer", PATIENCE_S)
        assert admitted.result() == "performer"
        caller.send(link_params("shm"))
        assert listening.receive(LinkParams, PATIENCE_S) == link_params("shm")
        body = msgspec.json.encode(link_params("gloo"))
        one.sendall(framed(body) + bytes(32))
        with pytest.raises(HandshakeError, match="was altered on the way"):
            listening.receive(LinkParams, PATIENCE_S)


def test_silent_strangers_do_not_hold_up_the_performer(
    threads: ThreadPoolExecutor, listener: RendezvousListener
) -> None:
    strangers = [socket.create_connection((HOST, listener.port)) for _ in range(20)]
    began = time.monotonic()
    thinker, performer = accept(threads, listener), join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)
    assert time.monotonic() - began < 10, "one after the other they would take 20 s"
    for stranger in strangers:
        stranger.close()


def test_strangers_that_come_again_and_again_do_not_keep_the_performer_out(
    threads: ThreadPoolExecutor, listener: RendezvousListener, caplog: pytest.LogCaptureFixture
) -> None:
    over = threading.Event()

    def flood() -> None:
        strangers: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                strangers.append(socket.create_connection((HOST, listener.port), 1.0))
            for gone in strangers[:-64]:
                gone.close()
            del strangers[:-64]
        for stranger in strangers:
            stranger.close()

    flooding = threads.submit(flood)
    began = time.monotonic()
    thinker, performer = accept(threads, listener), join(threads, listener.port)
    try:
        with thinker.result(PATIENCE_S) as thinker_end, performer.result(PATIENCE_S) as performer_end:
            check_it_works(thinker_end, performer_end)
    finally:
        over.set()
    flooding.result()
    warned = [record for record in caplog.records if "turned away" in record.getMessage()]
    assert len(warned) <= 2 + time.monotonic() - began, "one line a second"


def link_params(link: str) -> LinkParams:
    there = Capabilities(process="performer", link=link, host=host_identity(), available=(link,))
    return LinkParams(digest="same", shape=SHAPE, capabilities=there)


def test_a_performer_that_dies_while_the_link_is_opened_is_followed_by_another(
    threads: ThreadPoolExecutor, listener: RendezvousListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.processes.rendezvous._OPENING_S", 0.2)
    with socket.create_connection((HOST, listener.port)) as line:
        short_lived = HandshakeConnection(line)
        short_lived.introduce(SECRET, "performer", PATIENCE_S)
        short_lived.send(link_params("shm"))
    thinker = accept(threads, listener)
    performer = join(threads, listener.port)
    with thinker.result() as thinker_end, performer.result() as performer_end:
        check_it_works(thinker_end, performer_end)


def test_a_performer_calls_again_when_the_thinker_went(threads: ThreadPoolExecutor) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = int(gone.getsockname()[1])
        performer = join(threads, port)
        gone.accept()[0].close()
    with (
        RendezvousListener(HOST, port, secret=SECRET, role=THINKER) as listener,
        accept(threads, listener).result() as thinker_end,
        performer.result() as performer_end,
    ):
        check_it_works(thinker_end, performer_end)


def test_what_answers_but_is_no_thinker_is_an_error(threads: ThreadPoolExecutor) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        performer = join(threads, port)
        line, _ = other.accept()
        with line:
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(RendezvousError, match=f"what answers at {HOST}:{port} is no thinker"):
                performer.result()


def test_another_version_is_told(threads: ThreadPoolExecutor) -> None:
    with socket.create_server((HOST, 0)) as other:
        performer = join(threads, other.getsockname()[1])
        line, _ = other.accept()
        with line:
            HandshakeConnection(line).send(Challenge(version=VERSION + 1, nonce="0" * 64))
            with pytest.raises(RendezvousError, match=f"version {VERSION + 1} there and {VERSION} here"):
                performer.result()


def test_a_port_in_use_is_one_clear_error(listener: RendezvousListener) -> None:
    with pytest.raises(RendezvousError, match=rf"can't listen on {HOST}:{listener.port}: .*in use"):
        RendezvousListener(HOST, listener.port, secret=SECRET, role=THINKER)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_can_not_be_is_an_error(port: int) -> None:
    with pytest.raises(RendezvousError, match=f"must be 0 to 65535, got {port}"):
        RendezvousListener(HOST, port, secret=SECRET, role=THINKER)
    with pytest.raises(RendezvousError, match=f"must be 1 to 65535, got {port}"):
        joined(HOST, port, PARAMS, timeout_s=0.1)


def test_a_host_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RendezvousError, match="there is no host 'no such host'"):
        joined("no such host", 1, PARAMS)


def test_time_outs_say_who_was_missing(listener: RendezvousListener) -> None:
    with pytest.raises(
        RendezvousError, match=rf"performer at {HOST}:{listener.port} was not there within 0\.05 s"
    ):
        accepted(listener, PARAMS, timeout_s=0.05)
    port = free_port()
    with pytest.raises(RendezvousError, match=rf"thinker at {HOST}:{port} was not there within 0\.05 s"):
        joined(HOST, port, PARAMS, timeout_s=0.05)
    # A thinker that listens but is busy is waited for, too, and not longer.
    with pytest.raises(
        RendezvousError, match=rf"thinker at {HOST}:{listener.port} was not there within 0\.05 s"
    ):
        joined(HOST, listener.port, PARAMS, timeout_s=0.05)


def test_both_sides_can_be_stopped(threads: ThreadPoolExecutor, listener: RendezvousListener) -> None:
    stop = threading.Event()
    waiting = [
        threads.submit(accepted, listener, PARAMS, stop=stop),
        threads.submit(joined, HOST, free_port(), PARAMS, stop=stop),
    ]
    started = time.monotonic()
    stop.set()
    for side in waiting:
        with pytest.raises(RendezvousError, match=r"stopped while waiting for the (performer|thinker)"):
            side.result()
    assert time.monotonic() - started < PATIENCE_S

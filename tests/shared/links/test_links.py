"""One suite for every link; all but loopback talk to a Performer in a second process.

xccl and nccl need devices: here they are what `performer_end.py` calls "announced", the same over gloo.
"""

import gc
import os
import runpy
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.links.announced import AnnouncedOffer
from shared.links.base import LinkEnd, LinkShape
from shared.links.choose import missing
from shared.links.loopback import loopback_pair
from shared.links.peer import Peer
from shared.links.waiting import AnyOf, Doorbell
from shared.rendezvous import Listener, Terms, accept_performer
from shared.slices import Flags, Kind, SliceHeader

PERFORMER_END = Path(__file__).with_name("performer_end.py")
LINKS = ["loopback", "shm", "gloo", "ccl", "announced"]
SHAPE = LinkShape(slice_bytes=100_003, latent_bytes=100_003, depth=3)
PATIENCE_S = 30.0

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Setting:
    end: LinkEnd
    kill: Callable[[], None]


@contextmanager
def facing(link: str, role: str, shape: LinkShape = SHAPE) -> Iterator[Setting]:
    """The Thinker's end of a link whose Performer plays `role`."""
    if link == "ccl" and (reason := missing(link)):
        pytest.skip(reason)
    with (
        facing_a_thread(role, shape) if link == "loopback" else facing_a_process(link, role, shape) as setting
    ):
        yield setting


@contextmanager
def facing_a_thread(role: str, shape: LinkShape) -> Iterator[Setting]:
    play = runpy.run_path(str(PERFORMER_END))["play"]
    thinker_end, performer_end = loopback_pair(shape)

    def perform() -> None:
        with performer_end:
            play(role, performer_end)

    thread = threading.Thread(target=perform)
    thread.start()
    try:
        with thinker_end:
            yield Setting(end=thinker_end, kill=performer_end.peer.hang_up)
    finally:
        thread.join(PATIENCE_S)


@contextmanager
def facing_a_process(link: str, role: str, shape: LinkShape) -> Iterator[Setting]:
    with Listener("127.0.0.1", 0) as listener:
        sizes = [str(size) for size in (shape.slice_bytes, shape.latent_bytes, shape.depth)]
        command = [sys.executable, str(PERFORMER_END), str(listener.port), link, *sizes, role]
        with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            try:
                with accept(listener, link, shape) as end:
                    assert end.kind == link
                    yield Setting(end=end, kill=process.kill)
            finally:
                process.kill()


def accept(listener: Listener, link: str, shape: LinkShape) -> LinkEnd:
    if link != "announced":
        return accept_performer(listener, Terms(digest="same", shape=shape, link=link), timeout_s=60)
    stand_in = runpy.run_path(str(PERFORMER_END))["STAND_IN"]
    offer = AnnouncedOffer(stand_in, shape, "127.0.0.1", device="cpu")
    line = listener.accept(60)
    assert line is not None
    line.sendall(offer.address.encode())
    with closing(offer):
        return offer.open(Peer("performer", line), 60)


@pytest.fixture(scope="module", params=LINKS)
def echoed(request: pytest.FixtureRequest) -> Iterator[LinkEnd]:
    with facing(request.param, "echo") as setting:
        yield setting.end
        send(setting.end, b"", kind=Kind.END)
        assert receive(setting.end) == b""


def header_of(payload_bytes: int, unit: int = 0, kind: Kind = Kind.STATE) -> SliceHeader:
    return SliceHeader(kind=kind, session=1, epoch=0, unit=unit, payload_bytes=payload_bytes)


def send(end: LinkEnd, message: bytes, kind: Kind = Kind.STATE) -> None:
    put(end.sender.reserve(PATIENCE_S), message)
    end.sender.commit(header_of(len(message), kind=kind))


def put(buffer: Tensor, message: bytes) -> None:
    if message:
        buffer[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)


def fill(end: LinkEnd, num_messages: int, timeout_s: float) -> None:
    for unit in range(num_messages):
        end.sender.reserve(timeout_s, f"state slice of unit {unit}")
        end.sender.commit(header_of(1))


def receive(end: LinkEnd) -> bytes:
    message = bytes(end.receiver.receive(PATIENCE_S).payload.numpy())
    end.receiver.release()
    return message


@pytest.mark.parametrize("num_bytes", [0, 1, 7, 64, 4096, SHAPE.slice_bytes - 1, SHAPE.slice_bytes])
def test_every_size_up_to_the_largest(echoed: LinkEnd, num_bytes: int) -> None:
    message = torch.randint(256, (num_bytes,), dtype=torch.uint8).numpy().tobytes()
    send(echoed, message)
    assert receive(echoed) == message


def test_headers_cross_whole_and_are_stamped_when_they_leave(echoed: LinkEnd) -> None:
    sent = SliceHeader(
        kind=Kind.REMEMBER, session=7, epoch=3, unit=-1, layer=5, flags=Flags.MORE, append_ns=11, solve_ns=12
    )
    before = time.monotonic_ns()
    echoed.sender.reserve(PATIENCE_S)
    echoed.sender.commit(sent)
    after = time.monotonic_ns()
    header, payload = echoed.receiver.receive(PATIENCE_S)
    echoed.receiver.release()
    assert payload.numel() == 0
    assert before <= header.received_at_ns <= after  # the echo puts the stamp of the way there in this field
    assert header == replace(sent, sent_at_ns=header.sent_at_ns, received_at_ns=header.received_at_ns)


def test_a_stamp_that_is_there_is_kept(echoed: LinkEnd) -> None:
    echoed.sender.reserve(PATIENCE_S)
    echoed.sender.commit(replace(header_of(0), sent_at_ns=17))
    assert echoed.receiver.receive(PATIENCE_S).header.received_at_ns == 17
    echoed.receiver.release()


def test_a_checked_message_carries_the_checksum_of_its_payload(echoed: LinkEnd) -> None:
    put(echoed.sender.reserve(PATIENCE_S), b"keys!")
    echoed.sender.commit(replace(header_of(5), flags=Flags.CHECKED))
    header, payload = echoed.receiver.receive(PATIENCE_S)
    assert (header.checksum, bytes(payload.numpy())) == (zlib.crc32(b"keys!"), b"keys!")
    echoed.receiver.release()


def test_order_over_many_laps_with_several_in_flight(echoed: LinkEnd) -> None:
    for first in range(0, 40 * SHAPE.depth, SHAPE.depth):
        messages = [str(number).encode() * (1 + number % 5) for number in range(first, first + SHAPE.depth)]
        for message in messages:
            send(echoed, message)
        assert [receive(echoed) for _ in messages] == messages


def test_buffers_are_as_large_as_agreed_and_aligned(echoed: LinkEnd) -> None:
    for _ in range(SHAPE.depth):
        buffer = echoed.sender.reserve(PATIENCE_S)
        assert len(buffer) == echoed.sender.max_bytes == SHAPE.slice_bytes
        assert buffer.data_ptr() % 64 == 0
        echoed.sender.commit(header_of(1))
        assert echoed.receiver.receive(PATIENCE_S).payload.data_ptr() % 64 == 0
        echoed.receiver.release()


def test_reserving_again_gives_the_same_buffer_until_committed(echoed: LinkEnd) -> None:
    echoed.sender.reserve(PATIENCE_S)[0] = 1
    again = echoed.sender.reserve(PATIENCE_S)
    assert again[0] == 1
    again[0] = 2
    echoed.sender.commit(header_of(1))
    assert receive(echoed) == b"\2"


def test_time_out_names_peer_direction_and_unit(echoed: LinkEnd) -> None:
    assert echoed.receiver.poll() is None
    message = r"link from the performer: latents of unit 7 did not come within 0\.001 s, but it is alive"
    with pytest.raises(LinkTimeout, match=message):
        echoed.receiver.receive(0.001, "latents of unit 7")
    send(echoed, b"still in order")
    assert receive(echoed) == b"still in order"


def test_wait_ends_for_a_message_which_poll_then_has(echoed: LinkEnd) -> None:
    assert not echoed.receiver.wait(0)
    send(echoed, b"here")
    assert echoed.receiver.wait(PATIENCE_S)
    assert echoed.receiver.wait(0)
    message = echoed.receiver.poll()
    assert message is not None
    assert bytes(message.payload.numpy()) == b"here"
    echoed.receiver.release()
    assert not echoed.receiver.wait(0)


def test_wait_on_several_sources(echoed: LinkEnd) -> None:
    doorbell = Doorbell()
    either = AnyOf(echoed.receiver, doorbell)
    assert not either.wait(0)
    threading.Thread(target=doorbell.ring).start()
    assert either.wait(PATIENCE_S)
    assert doorbell.answer()
    assert not either.wait(0)
    send(echoed, b"message")
    assert either.wait(PATIENCE_S)
    assert receive(echoed) == b"message"
    doorbell.close()


@pytest.mark.parametrize("link", LINKS)
def test_a_performer_that_takes_nothing_holds_the_thinker_back(link: str) -> None:
    with facing(link, "hold") as setting:
        send(setting.end, b"taken and kept")
        assert receive(setting.end) == b"t"
        # Over a network a message can wait on either side: depth here, and depth in posted receives.
        message = (
            r"link to the performer: it freed no buffer for state slice of unit \d within 0\.2 s, "
            rf"{SHAPE.depth} messages are in flight"
        )
        with pytest.raises(LinkTimeout, match=message):
            fill(setting.end, 2 * SHAPE.depth, timeout_s=0.2)


@pytest.mark.parametrize("link", LINKS)
def test_a_performer_killed_while_busy_is_gone_for_sender_and_receiver(link: str) -> None:
    with facing(link, "hold") as setting:
        send(setting.end, b"x")
        assert receive(setting.end) == b"x"
        setting.kill()
        started = time.monotonic()
        assert setting.end.receiver.wait(PATIENCE_S)
        with pytest.raises(LinkClosed, match="link from the performer: the performer is gone"):
            setting.end.receiver.receive(PATIENCE_S)
        with pytest.raises(LinkClosed, match="link to the performer: the performer is gone"):
            setting.end.sender.reserve(PATIENCE_S)
        assert time.monotonic() - started < PATIENCE_S / 2


@pytest.mark.parametrize("link", LINKS)
def test_a_sender_held_back_learns_that_the_performer_died(link: str) -> None:
    with facing(link, "hold") as setting:
        send(setting.end, b"x")
        assert receive(setting.end) == b"x"
        killer = threading.Timer(0.3, setting.kill)
        killer.start()
        with pytest.raises(LinkClosed, match="link to the performer: the performer is gone"):
            fill(setting.end, 2 * SHAPE.depth, timeout_s=PATIENCE_S)
        killer.join()


@pytest.mark.parametrize("link", LINKS)
def test_what_was_sent_before_leaving_still_arrives(link: str) -> None:
    messages = runpy.run_path(str(PERFORMER_END))["FLOOD_MESSAGES"]
    with facing(link, "flood") as setting:
        assert [receive(setting.end)[0] for _ in range(messages)] == list(range(messages))
        with pytest.raises(LinkClosed):
            setting.end.receiver.receive(PATIENCE_S)


@pytest.mark.parametrize("link", LINKS)
def test_a_closed_end_says_so(link: str) -> None:
    with facing(link, "hold") as setting:
        send(setting.end, b"x")
        assert receive(setting.end) == b"x"
        setting.end.close()
        setting.end.close()
        with pytest.raises(LinkClosed, match="link to the performer: this end was closed"):
            setting.end.sender.reserve(0)
        for call in (setting.end.receiver.poll, lambda: setting.end.receiver.wait(0)):
            with pytest.raises(LinkClosed, match="link from the performer: this end was closed"):
                call()


@pytest.mark.parametrize("link", LINKS)
def test_a_kill_leaves_nothing_behind(link: str) -> None:
    def names() -> set[str]:
        found = [path.name for folder in ("/dev/shm", "/tmp") for path in Path(folder).iterdir()]
        ours = ("thinker", "performer", "gloo", "torch", "psm", "ccl", "fi_", ":")
        return {name for name in found if any(word in name for word in ours)}

    def num_fds() -> int:
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()])

    names_before, fds_before = names(), num_fds()
    with facing(link, "hold") as setting:
        send(setting.end, b"x")
        assert receive(setting.end) == b"x"
        setting.kill()
    del setting
    assert names() <= names_before
    assert num_fds() <= fds_before


@pytest.mark.parametrize("link", LINKS)
def test_many_in_flight(link: str) -> None:
    shape = LinkShape(slice_bytes=1000, latent_bytes=1000, depth=40)
    with facing(link, "echo", shape) as setting:
        for lap in range(3):
            messages = [bytes([lap]) * (1 + number) for number in range(shape.depth)]
            for message in messages:
                send(setting.end, message)
            assert [receive(setting.end) for _ in messages] == messages
        send(setting.end, b"", kind=Kind.END)
        assert receive(setting.end) == b""


def test_messages_stay_readable_memory_after_the_end_is_closed() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    send(thinker_end, b"kept")
    kept = performer_end.receiver.receive(0).payload
    performer_end.close()
    thinker_end.close()
    del thinker_end, performer_end
    gc.collect()
    assert bytes(kept.numpy()) == b"kept"


def test_a_length_that_lies_is_not_followed() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        send(thinker_end, b"x")
        (index,) = thinker_end.sender._under_way  # type: ignore[attr-defined]
        slot = thinker_end.sender._slots[index]  # type: ignore[attr-defined]
        slot.header[24:28] = (SHAPE.slice_bytes + 1).to_bytes(4, "little")
        message = f"state slice of unit 0 of session 1: {SHAPE.slice_bytes + 1} bytes in a buffer of"
        with pytest.raises(SliceError, match=message):
            performer_end.receiver.poll()


def test_a_checked_payload_that_changed_on_the_way_is_refused() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        buffer = thinker_end.sender.reserve(0)
        thinker_end.sender.commit(replace(header_of(5, unit=3), flags=Flags.CHECKED))
        buffer[4] ^= 1
        with pytest.raises(
            SliceError, match="link from the thinker: state slice of unit 3 of session 1: checks"
        ):
            performer_end.receiver.poll()


@pytest.mark.parametrize("field", ["slice_bytes", "latent_bytes", "depth"])
def test_sizes_are_checked(field: str) -> None:
    sizes = {"slice_bytes": 1, "latent_bytes": 1, "depth": 1} | {field: 0}
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        LinkShape(**sizes)

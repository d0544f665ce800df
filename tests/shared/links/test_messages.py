"""What a link does with messages: the same for every link, echoed by a Performer."""

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from shared.errors import LinkTimeout
from shared.links.base import LinkShape
from shared.links.waiting import AnyOf, WakeEvent
from shared.slices import Flags, Kind, SliceHeader

SHAPE = LinkShape(to_peer=100_003, from_peer=100_003, depth=3)
TIMEOUT_S = 30.0

pytestmark = pytest.mark.slow
Facing = Any  # see conftest.py


@pytest.fixture(scope="module", params=["loopback", "shm", "gloo", "ccl", "collective"])
def echoed(request: pytest.FixtureRequest, facing: Callable[..., Any]) -> Iterator[Facing]:
    with facing(request.param, "echo", SHAPE) as setting:
        yield setting
        setting.send(b"", kind=Kind.END)
        assert setting.receive() == b""


def header_of(payload_bytes: int) -> SliceHeader:
    return SliceHeader(kind=Kind.STATE, session=1, unit=0, payload_bytes=payload_bytes)


@pytest.mark.parametrize("num_bytes", [0, 1, 7, 64, 4096, SHAPE.to_peer - 1, SHAPE.to_peer])
def test_every_size_up_to_the_largest(echoed: Facing, num_bytes: int) -> None:
    message = torch.randint(256, (num_bytes,), dtype=torch.uint8).numpy().tobytes()
    echoed.send(message)
    assert echoed.receive() == message


def test_headers_cross_whole_and_are_stamped_when_they_leave(echoed: Facing) -> None:
    sent = SliceHeader(
        kind=Kind.COMMIT, session=7, unit=-1, layer=5, flags=Flags.MORE, append_ns=11, solve_ns=12
    )
    before = time.monotonic_ns()
    echoed.end.sender.reserve(TIMEOUT_S)
    echoed.end.sender.send(sent)
    after = time.monotonic_ns()
    header, payload = echoed.end.receiver.receive(TIMEOUT_S)
    echoed.end.receiver.release()
    assert payload.numel() == 0
    assert before <= header.received_at_ns <= after  # the echo puts the stamp of the way there in this field
    assert header == replace(sent, sent_at_ns=header.sent_at_ns, received_at_ns=header.received_at_ns)


def test_a_stamp_that_is_there_is_kept(echoed: Facing) -> None:
    echoed.end.sender.reserve(TIMEOUT_S)
    echoed.end.sender.send(replace(header_of(0), sent_at_ns=17))
    assert echoed.end.receiver.receive(TIMEOUT_S).header.received_at_ns == 17
    echoed.end.receiver.release()


def test_a_checked_message_carries_the_checksum_of_its_payload(echoed: Facing) -> None:
    echoed.end.sender.reserve(TIMEOUT_S)[:5] = torch.tensor(list(b"keys!"), dtype=torch.uint8)
    echoed.end.sender.send(replace(header_of(5), flags=Flags.CHECKED))
    header, payload = echoed.end.receiver.receive(TIMEOUT_S)
    assert (header.checksum, bytes(payload.numpy())) == (zlib.crc32(b"keys!"), b"keys!")
    echoed.end.receiver.release()


def test_order_over_many_laps_with_several_in_flight(echoed: Facing) -> None:
    for first in range(0, 40 * SHAPE.depth, SHAPE.depth):
        messages = [str(number).encode() * (1 + number % 5) for number in range(first, first + SHAPE.depth)]
        for message in messages:
            echoed.send(message)
        assert [echoed.receive() for _ in messages] == messages


def test_random_messages_in_bursts_come_whole_and_in_order(echoed: Facing) -> None:
    draw = random.Random(1)
    sizes = [draw.choice([0, draw.randrange(64), draw.randrange(SHAPE.to_peer)]) for _ in range(120)]
    messages = [draw.randbytes(size) for size in sizes]
    sent = 0
    for received, message in enumerate(messages):
        for each in messages[sent : received + draw.randint(1, SHAPE.depth)]:
            echoed.send(each)
            sent += 1
        assert echoed.receive() == message


def test_slots_are_used_again(echoed: Facing) -> None:
    places = set()
    for _ in range(5 * SHAPE.depth):
        places.add(echoed.end.sender.reserve(TIMEOUT_S).data_ptr())
        echoed.send(b"x")
        assert echoed.receive() == b"x"
    assert len(places) <= SHAPE.depth


def test_buffers_are_as_large_as_agreed_and_aligned(echoed: Facing) -> None:
    for _ in range(SHAPE.depth):
        buffer = echoed.end.sender.reserve(TIMEOUT_S)
        assert len(buffer) == echoed.end.sender.max_bytes == SHAPE.to_peer
        assert buffer.data_ptr() % 64 == 0
        echoed.end.sender.send(header_of(1))
        assert echoed.end.receiver.receive(TIMEOUT_S).payload.data_ptr() % 64 == 0
        echoed.end.receiver.release()


def test_reserving_again_gives_the_same_buffer_until_committed(echoed: Facing) -> None:
    echoed.end.sender.reserve(TIMEOUT_S)[0] = 1
    again = echoed.end.sender.reserve(TIMEOUT_S)
    assert again[0] == 1
    again[0] = 2
    echoed.end.sender.send(header_of(1))
    assert echoed.receive() == b"\2"


def test_time_out_names_peer_direction_and_unit(echoed: Facing) -> None:
    assert echoed.end.receiver.poll() is None
    message = r"link from the performer: latents of unit 7 did not come within 0\.001 s, but it is alive"
    with pytest.raises(LinkTimeout, match=message):
        echoed.end.receiver.receive(0.001, "latents of unit 7")
    echoed.send(b"still in order")
    assert echoed.receive() == b"still in order"


def test_wait_ends_for_a_message_which_poll_then_has(echoed: Facing) -> None:
    assert not echoed.end.receiver.wait(0)
    echoed.send(b"here")
    assert echoed.end.receiver.wait(TIMEOUT_S)
    assert echoed.end.receiver.wait(0)
    message = echoed.end.receiver.poll()
    assert message is not None
    assert bytes(message.payload.numpy()) == b"here"
    echoed.end.receiver.release()
    assert not echoed.end.receiver.wait(0)


def test_wait_on_several_sources(echoed: Facing) -> None:
    wake = WakeEvent()
    either = AnyOf(echoed.end.receiver, wake)
    assert not either.wait(0)
    threading.Thread(target=wake.set).start()
    assert either.wait(TIMEOUT_S)
    assert wake.clear()
    assert not either.wait(0)
    echoed.send(b"message")
    assert either.wait(TIMEOUT_S)
    assert echoed.receive() == b"message"
    wake.close()

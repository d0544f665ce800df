"""What both ends of a ring hold each other to, and what becomes of its memory."""

import gc
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from shared.errors import SliceError
from shared.links.base import LinkEnd, LinkShape
from shared.links.loopback import loopback_pair
from shared.slices import Flags, Kind, SliceHeader

SHAPE = LinkShape(to_peer=1000, from_peer=1000, depth=3)


def header_of(payload_bytes: int, unit: int = 0) -> SliceHeader:
    return SliceHeader(kind=Kind.STATE, session=1, unit=unit, payload_bytes=payload_bytes)


def send(end: LinkEnd, header: SliceHeader, message: bytes) -> Tensor:
    buffer = end.sender.reserve(0)[: len(message)]
    buffer[:] = torch.tensor(list(message), dtype=torch.uint8)
    end.sender.send(header)
    return buffer


def test_the_slot_that_came_back_last_is_filled_next() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        places = [send(thinker_end, header_of(1), b"x").data_ptr() for _ in range(SHAPE.depth)]
        for _ in range(2):
            assert performer_end.receiver.receive(0).payload.tolist() == list(b"x")
            performer_end.receiver.release()
        again = [send(thinker_end, header_of(1, unit), b"y").data_ptr() for unit in (1, 2)]
        assert again == [places[1], places[0]]
        units = []
        for _ in range(SHAPE.depth):
            units.append(performer_end.receiver.receive(0).header.unit)
            performer_end.receiver.release()
        assert units == [0, 1, 2]


def test_what_was_sent_is_wiped_at_once_or_when_it_comes_back() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        sender, receiver = thinker_end.sender, performer_end.receiver
        first, second = (send(thinker_end, header_of(1), text) for text in (b"x", b"y"))
        receiver.receive(0)
        receiver.release()
        sender.wipe()
        assert not sender.wiped()
        assert (first.item(), second.item()) == (0, ord("y")), "what the other end may still read stays"
        receiver.receive(0)
        receiver.release()
        assert sender.wiped()
        assert not any(buffer.payload.any() for buffer in sender.buffers)  # type: ignore[attr-defined]
        send(thinker_end, header_of(1), b"n")
        assert sender.wiped(), "what is sent afterwards is another's"
        assert receiver.receive(0).payload.tolist() == list(b"n")


def test_a_receiver_with_memory_of_its_own_wipes_what_it_releases() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        receiver: Any = performer_end.receiver
        for wipes, left in ((False, b"said"), (True, bytes(4))):
            receiver.wipes = wipes  # as over gloo and the collective links
            send(thinker_end, header_of(4), b"said")
            payload = receiver.receive(0).payload
            receiver.release()
            assert bytes(payload.numpy()) == left


def test_messages_stay_readable_memory_after_the_end_is_closed() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    send(thinker_end, header_of(4), b"kept")
    kept = performer_end.receiver.receive(0).payload
    performer_end.close()
    thinker_end.close()
    del thinker_end, performer_end
    gc.collect()
    assert bytes(kept.numpy()) == b"kept"


def test_a_length_that_lies_is_not_followed() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        send(thinker_end, header_of(1), b"x")
        (index,) = thinker_end.sender._in_flight  # type: ignore[attr-defined]
        buffer = thinker_end.sender.buffers[index]  # type: ignore[attr-defined]
        buffer.header[24:28] = (SHAPE.to_peer + 1).to_bytes(4, "little")
        message = f"state slice of unit 0 of session 1: {SHAPE.to_peer + 1} bytes in a buffer of"
        with pytest.raises(SliceError, match=message):
            performer_end.receiver.poll()


def test_a_checked_payload_that_changed_on_the_way_is_refused() -> None:
    thinker_end, performer_end = loopback_pair(SHAPE)
    with thinker_end, performer_end:
        buffer = send(thinker_end, replace(header_of(5, unit=3), flags=Flags.CHECKED), b"keys!")
        buffer[4] ^= 1
        with pytest.raises(
            SliceError, match="link from the thinker: state slice of unit 3 of session 1: checks"
        ):
            performer_end.receiver.poll()


@pytest.mark.parametrize("field", ["to_peer", "from_peer", "depth"])
def test_sizes_are_checked(field: str) -> None:
    sizes = {"to_peer": 1, "from_peer": 1, "depth": 1} | {field: 0}
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        LinkShape(**sizes)


def test_each_side_sends_what_the_other_receives() -> None:
    shape = LinkShape(to_peer=3000, from_peer=200, depth=3)
    thinker_end, performer_end = loopback_pair(shape)
    with thinker_end, performer_end:
        assert (thinker_end.sender.max_bytes, thinker_end.receiver.max_bytes) == (3000, 200)
        assert (performer_end.sender.max_bytes, performer_end.receiver.max_bytes) == (200, 3000)
    assert shape.reversed == LinkShape(to_peer=200, from_peer=3000, depth=3)
    assert shape.reversed.reversed == shape

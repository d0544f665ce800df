from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SliceError
from shared.links.base import LinkShape
from shared.links.loopback import loopback_pair
from shared.slices import (
    HEADER_BYTES,
    Flags,
    Kind,
    SliceHeader,
    pack_header_into,
    seal,
    unpack_header,
    unseal,
)

GOLDEN = SliceHeader(
    kind=Kind.LATENTS,
    flags=Flags.CHECKED,
    session=0x01020304,
    epoch=0x11121314,
    unit=-2,
    payload_bytes=0x21222324,
    checksum=0x31323334,
    sent_at_ns=0x4142434445464748,
    received_at_ns=0x5152535455565758,
    append_ns=1,
    solve_ns=-1,
)
GOLDEN_BYTES = bytes.fromhex(
    "5450 01 04 0100 0000 04030201 14131211 feffffffffffffff 24232221 34333231"
    "4847464544434241 5857565554535251 0100000000000000 ffffffffffffffff"
)

U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.builds(
    SliceHeader,
    kind=st.sampled_from(Kind),
    flags=st.sampled_from([Flags.NONE, Flags.CHECKED]),
    session=U32,
    epoch=U32,
    unit=I64,
    payload_bytes=U32,
    checksum=U32,
    sent_at_ns=I64,
    received_at_ns=I64,
    append_ns=I64,
    solve_ns=I64,
)


def packed(header: SliceHeader) -> bytes:
    buffer = bytearray(HEADER_BYTES)
    pack_header_into(buffer, header)
    return bytes(buffer)


def test_golden_bytes() -> None:
    assert packed(GOLDEN) == GOLDEN_BYTES
    assert unpack_header(GOLDEN_BYTES) == GOLDEN


@given(HEADERS)
def test_round_trip(header: SliceHeader) -> None:
    assert unpack_header(packed(header)) == header


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_any_bytes_are_a_slice_or_a_slice_error(data: bytes) -> None:
    with suppress(SliceError):
        unseal(memoryview(data))


@given(st.integers(0, HEADER_BYTES - 1))
def test_a_truncated_header_is_refused(num_bytes: int) -> None:
    with pytest.raises(SliceError, match=f"needs 64 bytes, got {num_bytes}"):
        unpack_header(GOLDEN_BYTES[:num_bytes])


@pytest.mark.parametrize(
    ("offset", "message"), [(0, "magic"), (2, "version 99"), (3, "unknown kind of slice: 99")]
)
def test_what_is_no_slice_is_refused(offset: int, message: str) -> None:
    wrong = bytearray(GOLDEN_BYTES)
    wrong[offset] = 99
    with pytest.raises(SliceError, match=message):
        unpack_header(wrong)


@pytest.mark.parametrize("checked", [False, True])
def test_sealed_messages_open_over_a_link(checked: bool) -> None:
    header = SliceHeader(kind=Kind.STATE, session=1, epoch=2, unit=3, payload_bytes=5)
    thinker_end, performer_end = loopback_pair(LinkShape(slice_bytes=256, latent_bytes=256))
    with thinker_end, performer_end:
        buffer = thinker_end.sender.reserve(0)
        buffer[HEADER_BYTES : HEADER_BYTES + 5] = b"keys!"
        thinker_end.sender.commit(seal(buffer, header, checked=checked))
        received, payload = unseal(performer_end.receiver.receive(0))
        assert (received.kind, received.unit, bytes(payload)) == (Kind.STATE, 3, b"keys!")
        assert (Flags.CHECKED in received.flags) == checked


def test_a_checked_payload_that_changed_on_the_way_is_refused() -> None:
    message = bytearray(HEADER_BYTES + 5)
    seal(message, SliceHeader(kind=Kind.STATE, session=1, epoch=2, unit=3, payload_bytes=5), checked=True)
    message[-1] ^= 1
    with pytest.raises(SliceError, match="state of session 1 epoch 2 unit 3: checksum"):
        unseal(memoryview(message))


def test_a_payload_of_another_length_is_refused() -> None:
    message = bytearray(HEADER_BYTES + 5)
    end = seal(message, SliceHeader(kind=Kind.REMEMBER, session=1, epoch=0, unit=9, payload_bytes=5))
    with pytest.raises(
        SliceError, match="remember of session 1 epoch 0 unit 9: payload of 4 bytes, header says 5"
    ):
        unseal(memoryview(message)[: end - 1])

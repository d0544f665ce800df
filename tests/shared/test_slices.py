from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SliceError
from shared.slices import (
    HEADER_BYTES,
    Flags,
    Kind,
    SliceHeader,
    describe,
    pack_header_into,
    unpack_header,
)

GOLDEN = SliceHeader(
    kind=Kind.LATENTS,
    flags=Flags.CHECKED | Flags.MORE,
    layer=0x0506,
    session=0x01020304,
    unit=-2,
    payload_bytes=0x21222324,
    checksum=0x31323334,
    sent_at_ns=0x4142434445464748,
    received_at_ns=0x5152535455565758,
    append_ns=1,
    solve_ns=-1,
)
GOLDEN_BYTES = bytes.fromhex(
    "5450 03 04 0300 0605 04030201 00000000 feffffffffffffff 24232221 34333231"
    "4847464544434241 5857565554535251 0100000000000000 ffffffffffffffff"
)

U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.builds(
    SliceHeader,
    kind=st.sampled_from(Kind),
    flags=st.sampled_from([Flags.NONE, Flags.CHECKED, Flags.MORE, Flags.CHECKED | Flags.MORE]),
    layer=U16,
    session=U32,
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
    pack_header_into(buffer, header, sent_at_ns=header.sent_at_ns, checksum=header.checksum)
    return bytes(buffer)


def test_golden_bytes() -> None:
    assert packed(GOLDEN) == GOLDEN_BYTES
    assert unpack_header(GOLDEN_BYTES) == GOLDEN


@given(HEADERS)
def test_round_trip(header: SliceHeader) -> None:
    assert unpack_header(packed(header)) == header


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_any_bytes_are_a_header_or_a_slice_error(data: bytes) -> None:
    with suppress(SliceError):
        unpack_header(data)


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


def test_messages_have_names() -> None:
    assert describe(Kind.STATE, 17) == "state slice of unit 17"
    assert describe(Kind.LATENTS, 17) == "latents of unit 17"
    assert describe(Kind.RESET, 0) == "reset of unit 0"

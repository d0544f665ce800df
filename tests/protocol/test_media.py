"""The binary unit: exact bytes, round trips, and that no bytes whatever can raise."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Close, CloseCode
from protocol.media import (
    HEADER_BYTES,
    MAX_MEDIA_BYTES,
    AudioEncoding,
    MediaFlags,
    MediaKind,
    MediaUnit,
    VideoEncoding,
    decode_media,
    encode_media,
)

UNIT = MediaUnit(
    kind=MediaKind.AGENT,
    flags=MediaFlags.DISCONTINUITY | MediaFlags.KEYFRAME,
    epoch=3,
    unit=0x0102030405,
    pts_us=160_000,
    audio=b"\x01\x00\xff\x7f",
    frames=(b"\xff\xd8", b""),
)
GOLDEN = bytes.fromhex("""
    02 01 0900 03000000 0504030201000000 0071020000000000 01 01 02
    04000000 0100ff7f
    02000000 ffd8
    00000000
""")

units = st.builds(
    MediaUnit,
    kind=st.sampled_from(MediaKind),
    flags=st.integers(0, 0xFFFF).map(MediaFlags),
    epoch=st.integers(0, 2**32 - 1),
    unit=st.integers(0, 2**64 - 1),
    pts_us=st.integers(0, 2**64 - 1),
    audio_codec=st.just(AudioEncoding.PCM16),
    video_codec=st.sampled_from(VideoEncoding),
    audio=st.binary(max_size=40).map(lambda pcm: pcm[: len(pcm) & ~1]),
    frames=st.lists(st.binary(max_size=20), max_size=5).map(tuple),
)


def test_golden_bytes() -> None:
    assert HEADER_BYTES == 27
    assert encode_media(UNIT) == GOLDEN
    assert decode_media(GOLDEN) == UNIT


@given(units)
def test_round_trip(unit: MediaUnit) -> None:
    assert decode_media(encode_media(unit)) == unit


def test_sound_alone_and_pictures_alone() -> None:
    bare = MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, video_codec=VideoEncoding.NONE)
    assert decode_media(encode_media(bare)) == bare
    assert len(encode_media(bare)) == HEADER_BYTES + 4


@pytest.mark.parametrize("cut", range(len(GOLDEN)))
def test_every_truncation_is_a_fault(cut: int) -> None:
    assert isinstance(decode_media(GOLDEN[:cut]), Close)


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (0, 0, CloseCode.INVALID_DATA),  # kind
        (1, 2, CloseCode.VERSION_MISMATCH),
        (24, 9, CloseCode.INVALID_DATA),  # audio codec
        (25, 9, CloseCode.INVALID_DATA),  # video codec
        (26, 3, CloseCode.INVALID_DATA),  # one frame more than there is
        (26, 1, CloseCode.INVALID_DATA),  # one frame fewer: bytes are left over
        (27, 3, CloseCode.INVALID_DATA),  # sound of an odd length
    ],
)
def test_a_lying_header_is_a_fault(at: int, value: int, code: CloseCode) -> None:
    message = bytearray(GOLDEN)
    message[at] = value
    fault = decode_media(bytes(message))
    assert isinstance(fault, Close)
    assert fault.code is code


def test_a_huge_claimed_length_allocates_nothing() -> None:
    fault = decode_media(GOLDEN[:HEADER_BYTES] + struct.pack("<I", 0xFFFFFFFF) + b"abc")
    assert isinstance(fault, Close)
    assert "4294967295" in fault.reason


def test_too_big_both_ways() -> None:
    fault = decode_media(bytes(MAX_MEDIA_BYTES + 1))
    assert isinstance(fault, Close)
    assert fault.code is CloseCode.TOO_BIG
    with pytest.raises(ValueError, match="unit 0 has"):
        encode_media(MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, frames=(bytes(MAX_MEDIA_BYTES),)))


def test_numbers_that_do_not_fit_name_the_unit() -> None:
    with pytest.raises(ValueError, match="media unit -1"):
        encode_media(MediaUnit(kind=MediaKind.USER, unit=-1, pts_us=0))


@given(st.binary(max_size=120))
def test_any_bytes_end_in_a_value(message: bytes) -> None:
    assert isinstance(decode_media(message), MediaUnit | Close)


@given(units, st.data())
def test_flipped_bits_and_lying_lengths_end_in_a_value(unit: MediaUnit, data: st.DataObject) -> None:
    message = bytearray(encode_media(unit))
    for at in data.draw(st.lists(st.integers(0, len(message) - 1), min_size=1, max_size=8)):
        message[at] ^= 1 << data.draw(st.integers(0, 7))
    result = decode_media(bytes(message[: data.draw(st.integers(0, len(message)))]))
    assert isinstance(result, MediaUnit | Close)
    if isinstance(result, MediaUnit):
        assert decode_media(encode_media(result)) == result

"""What clients send becomes what the model takes: any rate, any channels, any picture, and no bomb."""

import asyncio
import io
import struct
from collections.abc import Callable

import av
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Counter

from protocol.media import MediaKind, MediaUnit
from shared.models.family import AgentMedia
from thinker.server.inbox import Inbox
from thinker.server.media import (
    DropOldestQueue,
    PictureConverter,
    PictureError,
    SoundConverter,
    UserConverter,
    code_agent_media,
)
from thinker.server.metrics import ServerMetrics
from thinker.units import MediaSpec

SPEC = MediaSpec(
    model="test", unit_ms=160, fps=25, frames_per_unit=4, sample_rate=16_000, height=96, width=128,
    input_rate=16_000, input_height=48, input_width=64,
)  # fmt: skip


def tone(rate: int, hertz: float, seconds: float) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    samples: np.ndarray = np.rint(np.sin(2 * np.pi * hertz * t) * 16_000).astype("<i2")
    return samples


def jpeg(height: int, width: int, shade: int = 128) -> bytes:
    return bytes(simplejpeg.encode_jpeg(np.full((height, width, 3), shade, np.uint8), 90))


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 24_000, 44_100, 48_000, 96_000])
def test_any_rate_streams_without_a_seam(rate: int) -> None:
    """Unit by unit it equals the whole at once, and from the first unit on none comes out short."""
    sent = tone(rate, 440, 1.6)
    chunks = [sent[rate * 160 * i // 1000 : rate * 160 * (i + 1) // 1000] for i in range(10)]
    streaming = SoundConverter(rate=rate, channels=1, out_rate=16_000)
    got = [streaming.convert(chunk.tobytes()) for chunk in chunks]
    whole = SoundConverter(rate=rate, channels=1, out_rate=16_000).convert(sent.tobytes())
    joined = np.concatenate(got)
    np.testing.assert_allclose(joined, whole[: joined.size], atol=1)
    for so_far in range(1, 11):
        assert sum(chunk.size for chunk in got[:so_far]) == pytest.approx(2_560 * so_far, abs=40)
    assert got[0].size >= 2_560
    middle = joined[4_000:20_000].astype(float)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(middle.size)))
    assert spectrum.argmax() * 16_000 / middle.size == pytest.approx(440, abs=2)
    assert np.sqrt((middle**2).mean()) == pytest.approx(16_000 / np.sqrt(2), rel=0.02)


def test_the_models_own_rate_passes_unchanged() -> None:
    sent = tone(16_000, 300, 0.16)
    assert np.array_equal(
        SoundConverter(rate=16_000, channels=1, out_rate=16_000).convert(sent.tobytes()), sent
    )


def test_channels_are_mixed_without_wrapping() -> None:
    stereo = np.array([[32_767, 32_767], [-32_768, -32_768], [100, 300]], "<i2")
    mixed = SoundConverter(rate=16_000, channels=2, out_rate=16_000).convert(stereo.tobytes())
    assert mixed.tolist() == [32_767, -32_768, 200]


def test_a_loud_square_wave_clips_and_does_not_wrap() -> None:
    square = np.where(np.arange(48_000) // 60 % 2, 32_767, -32_768).astype("<i2")
    out = SoundConverter(rate=48_000, channels=1, out_rate=16_000).convert(square.tobytes()).astype(int)
    assert np.abs(np.diff(out[20::40])).max() <= 65_535
    # Overshoot that wrapped would jump to the other sign inside a half wave of 20 samples.
    halves = np.sign(out[: out.size // 20 * 20].reshape(-1, 20)[10:, 5:15])
    assert (np.abs(halves.sum(axis=1)) >= 8).all()


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x02\x03"])
def test_odd_byte_counts_are_no_matter(data: bytes) -> None:
    assert SoundConverter(rate=48_000, channels=2, out_rate=16_000).convert(data).size == 0


@pytest.mark.parametrize(
    ("height", "width"), [(48, 64), (99, 177), (640, 272), (1, 1), (1, 999), (999, 1), (480, 640)]
)
def test_any_picture_fits(height: int, width: int) -> None:
    picture = PictureConverter(height=48, width=64).convert(jpeg(height, width, shade=200))
    assert picture.shape == (48, 64, 3)
    assert picture.dtype == np.uint8
    assert np.abs(picture.astype(int) - 200).max() <= 3


def test_the_middle_is_kept_undistorted() -> None:
    wide = np.zeros((96, 400, 3), np.uint8)
    wide[:, 136:264] = 255  # the middle 128 columns: exactly what a 4:3 cut of 96 lines keeps
    picture = PictureConverter(height=48, width=64).convert(simplejpeg.encode_jpeg(wide, 95))
    assert picture[:, 4:-4].min() > 200


def test_grey_and_cmyk_pictures_become_rgb() -> None:
    grey = simplejpeg.encode_jpeg(np.full((50, 60, 1), 90, np.uint8), 90, "GRAY", colorsubsampling="Gray")
    assert np.abs(PictureConverter(height=48, width=64).convert(grey).astype(int) - 90).max() <= 3
    cmyk = simplejpeg.encode_jpeg(np.full((50, 60, 4), 90, np.uint8), 90, "CMYK")
    assert PictureConverter(height=48, width=64).convert(cmyk).shape == (48, 64, 3)


def test_a_bomb_is_refused_by_its_header() -> None:
    bomb = bytearray(jpeg(48, 64))
    struct.pack_into(">HH", bomb, bomb.find(b"\xff\xc0") + 5, 30_000, 30_000)
    with pytest.raises(PictureError, match="30000x30000 is too large"):
        PictureConverter(height=48, width=64).convert(bytes(bomb))


def test_endless_scans_are_refused() -> None:
    whole = jpeg(480, 640)
    start = whole.find(b"\xff\xda")
    with pytest.raises(PictureError, match="a picture of 640x480 has too many scans: 100"):
        PictureConverter(height=48, width=64).convert(whole[:start] + whole[start:-2] * 100 + whole[-2:])


def test_another_format_is_refused() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="image2pipe") as container:
        stream = container.add_stream("png", width=64, height=48, pix_fmt="rgb24")
        container.mux(stream.encode(av.VideoFrame(64, 48, "rgb24")))
        container.mux(stream.encode(None))
    with pytest.raises(PictureError, match="can't be decoded"):
        PictureConverter(height=48, width=64).convert(buffer.getvalue())


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damaged_pictures_are_pictures_or_picture_errors(data: st.DataObject) -> None:
    damaged = bytearray(jpeg(30, 40))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=6)):
        damaged[position] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        picture = PictureConverter(height=48, width=64).convert(cut)
    except PictureError:
        return
    assert picture.shape == (48, 64, 3)


def user_unit(audio: bytes, *frames: bytes) -> MediaUnit:
    return MediaUnit(kind=MediaKind.USER, unit=0, pts_us=0, audio=audio, frames=frames)


def test_a_unit_goes_whole_into_the_inbox(value: Callable[[Counter], float]) -> None:
    metrics = ServerMetrics()
    inbox = Inbox(SPEC, metrics)
    converter = UserConverter(inbox=inbox, spec=SPEC, audio_rate=48_000, audio_channels=2)
    stereo = np.repeat(tone(48_000, 200, 0.16)[:, None], 2, axis=1)
    converter.convert(user_unit(stereo.tobytes(), *(jpeg(120, 160, shade) for shade in (10, 60, 110, 160))))
    unit = inbox.take()
    assert value(metrics.missing_samples) == 0
    assert np.abs(unit.pcm).max() == pytest.approx(16_000 / 32_768, rel=0.02)
    assert unit.frames[:, 24, 32, 0] == pytest.approx([10, 60, 110, 160], abs=3)


def test_a_bad_picture_does_not_cost_the_sound() -> None:
    inbox = Inbox(SPEC, ServerMetrics())
    converter = UserConverter(inbox=inbox, spec=SPEC, audio_rate=16_000, audio_channels=1)
    with pytest.raises(PictureError):
        converter.convert(user_unit(tone(16_000, 200, 0.16).tobytes(), jpeg(48, 64), b"no picture"))
    unit = inbox.take()
    assert unit.pcm.any()
    assert unit.frames.any()


def test_only_the_newest_frames_of_a_fast_camera_are_decoded() -> None:
    inbox = Inbox(SPEC, ServerMetrics())
    converter = UserConverter(inbox=inbox, spec=SPEC, audio_rate=16_000, audio_channels=1)
    converter.convert(
        user_unit(b"", b"not even looked at", *(jpeg(48, 64, shade) for shade in (20, 40, 60, 80)))
    )
    assert inbox.take().frames[:, 0, 0, 0] == pytest.approx([20, 40, 60, 80], abs=2)


def test_the_agents_unit_is_coded() -> None:
    rng = np.random.default_rng(0)
    pcm = rng.integers(-32_768, 32_767, 2_560).astype(np.int16)
    frames = np.stack([np.full((96, 128, 3), shade, np.uint8) for shade in (0, 80, 160, 240)])
    audio, pictures = code_agent_media(AgentMedia(pcm=pcm, frames=frames))
    assert np.array_equal(np.frombuffer(audio, "<i2"), pcm)
    decoded = np.stack([simplejpeg.decode_jpeg(picture, "RGB") for picture in pictures])
    assert decoded.shape == frames.shape
    assert np.abs(decoded.astype(int) - frames).max() <= 2


async def test_a_queue_that_is_full_loses_the_oldest(value: Callable[[Counter], float]) -> None:
    lost = ServerMetrics().lost_units
    queue: DropOldestQueue[int] = DropOldestQueue(2, lost)
    for item in range(5):
        queue.put(item)
    assert (len(queue), value(lost)) == (2, 3)
    assert [await queue.get(), await queue.get()] == [3, 4]
    assert len(queue) == 0


async def test_a_reader_waits_for_what_comes() -> None:
    queue: DropOldestQueue[str] = DropOldestQueue(2, ServerMetrics().lost_units)
    reader = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not reader.done()
    queue.put("item")
    assert await reader == "item"

import io
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from thinker.film import video_encoder
from thinker.film.video_encoder import (
    VaapiEncoder,
    VideoEncoder,
    VideoShape,
    X264Encoder,
    boxes,
    finish_file,
    mime_of,
    open_encoder,
    vaapi_works,
)

SHAPE = VideoShape(64, 48, 16)
BLOCKS = (9, 12, 12, 5)


def pictures(count: int, first: int) -> NDArray[np.uint8]:
    """Each of its own brightness."""
    return np.stack([np.full((48, 64, 3), 6 * (first + n), np.uint8) for n in range(count)])


def encoded(encoder: VideoEncoder) -> bytes:
    film, first = b"", 0
    for number, count in enumerate(BLOCKS):
        block = encoder.encode(pictures(count, first), number=number, first_frame=first)
        film += block.init if number == 0 else b""
        film += block.fragment
        first += count
    return film


@pytest.fixture(params=["in this process", "in a child"])
def encoder(request: pytest.FixtureRequest) -> VideoEncoder:
    if request.param == "in this process":
        return X264Encoder(SHAPE)
    assert shutil.which("ffmpeg"), "scripts/check installs ffmpeg"
    return VaapiEncoder(SHAPE, codec="libx264")  # all but the codec is as with VA-API


def test_fragments_make_a_film_in_which_no_frame_is_lost(encoder: VideoEncoder) -> None:
    film = encoded(encoder)
    assert [kind for kind, _ in boxes(film)] == [b"ftyp", b"moov"] + [b"moof", b"mdat"] * len(BLOCKS)
    with av.open(io.BytesIO(film)) as container:
        frames = list(container.decode(video=0))
    assert [round(float(frame.pts * frame.time_base) * 16) for frame in frames] == list(range(sum(BLOCKS)))
    for number, frame in enumerate(frames):
        assert frame.to_ndarray(format="rgb24").mean() == pytest.approx(6 * number, abs=4)
    keys = [number for number, frame in enumerate(frames) if frame.key_frame]
    assert keys == [0, 9, 21, 33]


def test_the_finished_file_has_its_index_first_and_the_same_frames(tmp_path: Path) -> None:
    (tmp_path / "made.mp4").write_bytes(encoded(X264Encoder(SHAPE)))
    finish_file(tmp_path / "made.mp4", tmp_path / "out.mp4")
    kinds = [kind for kind, _ in boxes((tmp_path / "out.mp4").read_bytes())]
    assert kinds.index(b"moov") < kinds.index(b"mdat")
    assert b"moof" not in kinds
    with av.open(tmp_path / "out.mp4") as container:
        assert container.streams.video[0].frames == sum(BLOCKS)


def test_the_mime_type_names_profile_and_level() -> None:
    init = X264Encoder(SHAPE).encode(pictures(2, 0), number=0, first_frame=0).init
    assert mime_of(init).startswith('video/mp4; codecs="avc1.64')


def test_without_a_device_libx264_is_taken_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(video_encoder, "RENDER_DEVICE", tmp_path / "none")
    vaapi_works.cache_clear()
    with caplog.at_level("INFO"):
        assert isinstance(open_encoder(SHAPE), X264Encoder)
    assert "video is encoded by libx264: there is no" in caplog.text
    vaapi_works.cache_clear()


def test_a_device_that_can_not_is_found_out_by_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "renderD128").touch()
    monkeypatch.setattr(video_encoder, "RENDER_DEVICE", tmp_path / "renderD128")
    vaapi_works.cache_clear()
    with caplog.at_level("INFO"):
        assert isinstance(open_encoder(SHAPE), X264Encoder)
    assert "video is encoded by libx264: " in caplog.text
    vaapi_works.cache_clear()

"""Makes small media files: a steady tone, and grey frames whose brightness is their number."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

MakeMedia = Callable[..., Path]
LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}


def tone(seconds: float, rate: int) -> npt.NDArray[np.int16]:
    time = np.arange(round(seconds * rate)) / rate
    return np.round(12000 * np.sin(2 * np.pi * 440 * time)).astype(np.int16)


def grey(index: int, width: int, height: int) -> npt.NDArray[np.uint8]:
    return np.full((height, width, 3), 16 + 8 * (index % 28), np.uint8)


@pytest.fixture
def number_of() -> Callable[[npt.NDArray[np.uint8]], int]:
    """Reads the number out of a grey frame."""
    return lambda picture: round((float(picture.mean()) - 16) / 8)


def write_video(container: av.container.OutputContainer, stream: av.VideoStream, times: list[float]) -> None:
    for index, time in enumerate(times):
        frame = av.VideoFrame.from_ndarray(grey(index, stream.width, stream.height), "rgb24")
        frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def write_audio(
    container: av.container.OutputContainer,
    stream: av.AudioStream,
    seconds: float,
    channels: int,
    starts: float,
) -> None:
    pcm = np.repeat(tone(seconds, stream.rate), channels).reshape(1, -1)
    step = 1024 * channels
    for at in range(0, pcm.shape[1], step):
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(pcm[:, at : at + step]), "s16", LAYOUTS[channels]
        )
        frame.sample_rate = stream.rate
        frame.pts, frame.time_base = at // channels + round(starts * stream.rate), Fraction(1, stream.rate)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


@pytest.fixture
def make_media(tmp_path: Path) -> MakeMedia:
    """Write a file of any kind; `size` None is no video, `rate` None is no sound."""

    def make(
        name: str,
        *,
        seconds: float = 1.0,
        size: tuple[int, int] | None = (64, 48),
        times: list[float] | None = None,
        fps: int = 25,
        rate: int | None = 48000,
        channels: int = 2,
        audio_starts: float = 0.0,
        rotation: int = 0,
        audio_codec: str = "aac",
    ) -> Path:
        path = tmp_path / name
        with av.open(str(path), "w") as container:
            video = audio = None
            if size is not None:
                video = container.add_stream("mpeg4", rate=1000, options={"qmin": "1", "qmax": "2"})
                video.width, video.height, video.pix_fmt = *size, "yuv420p"
                video.set_display_rotation(rotation)
            if rate is not None:
                audio = container.add_stream(audio_codec, rate=rate, layout=LAYOUTS[channels])
            if video is not None:
                write_video(container, video, times or [index / fps for index in range(round(seconds * fps))])
            if audio is not None:
                write_audio(container, audio, seconds, channels, audio_starts)
        return path

    return make

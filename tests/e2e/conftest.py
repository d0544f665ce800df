"""Small media files of many kinds."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

MakeMedia = Callable[..., Path]


def write_pictures(file: av.container.OutputContainer, stream: av.VideoStream, times: list[float]) -> None:
    """A white bar that wanders over grey."""
    for index, time in enumerate(times):
        picture = np.full((stream.height, stream.width, 3), 90, np.uint8)
        picture[:, (index * 7) % stream.width :][:, :20] = 250
        frame = av.VideoFrame.from_ndarray(picture, "rgb24")
        frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
        file.mux(stream.encode(frame))
    file.mux(stream.encode(None))


def write_sound(file: av.container.OutputContainer, stream: av.AudioStream, seconds: float) -> None:
    """A tone of 440 Hz."""
    channels = stream.channels
    tone = 9000 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * stream.rate)) / stream.rate)
    pcm = np.repeat(tone.astype(np.int16), channels).reshape(1, -1)
    for at in range(0, pcm.shape[1], 1024 * channels):
        part = np.ascontiguousarray(pcm[:, at : at + 1024 * channels])
        frame = av.AudioFrame.from_ndarray(part, "s16", stream.layout.name)
        frame.sample_rate = stream.rate
        frame.pts, frame.time_base = at // channels, Fraction(1, stream.rate)
        file.mux(stream.encode(frame))
    file.mux(stream.encode(None))


@pytest.fixture(scope="session")
def make_media(tmp_path_factory: pytest.TempPathFactory) -> MakeMedia:
    """Write a file; `size` None: no video, `rate` None: no sound, `times`: of its pictures, in seconds."""

    def make(
        name: str,
        *,
        seconds: float = 3.0,
        size: tuple[int, int] | None = (160, 120),
        times: list[float] | None = None,
        rate: int | None = 48_000,
        layout: str = "stereo",
    ) -> Path:
        path = tmp_path_factory.mktemp("media") / name
        with av.open(str(path), "w") as file:
            video = audio = None
            if size is not None:
                # mpeg4 and not libx264, which refuses odd sizes
                video = file.add_stream("png" if path.suffix == ".png" else "mpeg4", rate=1000)
                video.width, video.height = size
                video.pix_fmt = "rgb24" if path.suffix == ".png" else "yuv420p"
            if rate is not None:
                audio = file.add_stream(
                    "pcm_s16le" if path.suffix == ".wav" else "aac", rate=rate, layout=layout
                )
            if video is not None:
                write_pictures(file, video, times or [index / 25 for index in range(round(seconds * 25))])
            if audio is not None:
                write_sound(file, audio, seconds)
        return path

    return make

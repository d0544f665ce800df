"""The two encoders of a recording and their file: H.264 and AAC in an MP4."""

import dataclasses
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container.output import OutputContainer
from av.video.stream import VideoStream

from client.decode import Pcm
from client.pictures import Picture


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RecordFormat:
    """What the agent sends: picture size, frames a second and a unit, samples a second and a unit."""

    width: int
    height: int
    fps: Fraction
    frames_per_unit: int
    sample_rate: int
    samples_per_unit: int

    @property
    def samples_per_frame(self) -> int:
        """Samples that sound while a frame is shown."""
        return self.samples_per_unit // self.frames_per_unit


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One picture and the sound that belongs to it."""

    pcm: Pcm
    picture: Picture


class Mp4:
    """A file that is being written, frame by frame. H.264 wants even sizes: an odd edge is doubled."""

    def __init__(self, path: Path, form: RecordFormat, *, width: int, height: int) -> None:
        self._frame_time = 1 / form.fps
        self._sample_time = Fraction(1, form.sample_rate)
        self._pad = ((0, height % 2), (0, width % 2), (0, 0))
        self._container: OutputContainer = av.open(str(path), "w", format="mp4")
        self._video: VideoStream = self._container.add_stream(
            "libx264", rate=form.fps, options={"preset": "veryfast", "crf": "19", "threads": "1", "bf": "0"}
        )
        self._video.width, self._video.height = width + width % 2, height + height % 2
        self._video.pix_fmt = "yuv420p"
        self._audio: AudioStream = self._container.add_stream("aac", rate=form.sample_rate, layout="mono")
        self._audio.bit_rate = 96_000
        self._num_frames = self._num_samples = 0

    def write(self, frame: Frame) -> None:
        """Append one picture and its sound."""
        picture = av.VideoFrame.from_ndarray(np.pad(frame.picture, self._pad, mode="edge"), "rgb24")
        picture.pts, picture.time_base = self._num_frames, self._frame_time
        self._num_frames += 1
        self._container.mux(self._video.encode(picture))
        sound = av.AudioFrame.from_ndarray(frame.pcm[None], "s16", "mono")
        sound.sample_rate = self._sample_time.denominator
        sound.pts, sound.time_base = self._num_samples, self._sample_time
        self._num_samples += len(frame.pcm)
        self._container.mux(self._audio.encode(sound))

    def close(self) -> None:
        """Write what the encoders still hold, and the end."""
        self._container.mux(self._video.encode(None))
        self._container.mux(self._audio.encode(None))
        self._container.close()

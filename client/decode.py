"""Sound and picture of a media file, decoded a little at a time, on the file's own timeline.

Each reader opens the file for itself: neither has to hold back what the other has not asked for yet, however
the file interleaves its streams, and memory stays flat. A damaged packet is skipped; once open, damage never
raises.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import soxr
from av.audio.stream import AudioStream
from av.container.input import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream

from client.errors import MediaError
from client.pictures import Picture, cover

log = logging.getLogger(__name__)

Pcm = npt.NDArray[np.int16]
Samples = npt.NDArray[np.float32]

MAX_RATE = 768_000  # the fastest sound there is: a file that says more is damaged
NUM_FRONT = 3  # left, right, centre come first in every layout; voices are there
GAP_S = 0.1  # time stamps that jump by more are a hole, by less they are rounding
SILENCE_CHUNK = 16_000
EARLY_S = 0.002  # containers round times to milliseconds: a frame this much too early is in time


class AudioReader:
    """The file's first sound track as mono PCM16 at `rate`, silence where the track has holes.

    `start` is the time of the first sample on the file's clock in seconds, None without sound. Set
    `origin`, the time that is to be sample 0, before the first read.
    """

    def __init__(self, path: Path, *, rate: int) -> None:
        self._container = _open(path)
        self._rate = rate
        self._frames = _audio_frames(self._container)
        self._next = next(self._frames, None)
        self._chunks = self._resampled()
        self._left: Pcm = np.zeros(0, np.int16)
        self.start = None if self._next is None else (self._next.time or 0.0)
        self.origin = 0.0

    def read(self, count: int) -> Pcm:
        """The next `count` samples, fewer at the end, none after it."""
        parts = [self._left]
        have = len(self._left)
        while have < count:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            have += len(chunk)
        joined = np.concatenate(parts)
        self._left = joined[count:]
        return joined[:count]

    def close(self) -> None:
        """Let go of the file."""
        self._container.close()

    def _resampled(self) -> Iterator[Pcm]:
        """A new resampler after each hole and each change of rate; in between its ratio is exact."""
        resampler: soxr.ResampleStream | None = None
        rate = 0
        due = 0.0  # seconds from the origin at which the next frame begins if nothing is missing
        given = 0
        while self._next is not None:
            frame, self._next = self._next, next(self._frames, None)
            at = due if frame.time is None else frame.time - self.origin
            hole = at - due > GAP_S or rate == 0
            if resampler is None or hole or rate != frame.sample_rate:
                for chunk in _flush(resampler):
                    given += len(chunk)
                    yield chunk
                due = max(at, due) if hole else due
                for chunk in _silence(round(due * self._rate) - given):
                    given += len(chunk)
                    yield chunk
                rate = frame.sample_rate
                resampler = soxr.ResampleStream(rate, self._rate, 1, dtype="float32")
            due += frame.samples / rate
            chunk = _to_pcm(resampler.resample_chunk(_mono(frame)))
            given += len(chunk)
            yield chunk
        yield from _flush(resampler)


class VideoReader:
    """The file's first video track, or its picture, looked at by time. A song's cover art is not a picture.

    `start` is the time of the first frame on the file's clock in seconds, None without video. Set
    `origin`, the time that is to be 0, before the first look. `end` is None until the last frame.
    """

    def __init__(self, path: Path) -> None:
        self._container = _open(path)
        self._stream = _pick_video(self._container)
        self._frames = _video_frames(self._container, self._stream)
        self._next = next(self._frames, None)
        self._shown: av.VideoFrame | None = None
        self._picture: Picture | None = None
        self._num_shown = 0
        self.start = None if self._next is None else (self._next.time or 0.0)
        self.origin = 0.0
        self.end: float | None = None

    @property
    def still(self) -> bool:
        """Whether the track turned out to be a single picture."""
        return self.end is not None and self._num_shown == 1

    def picture_at(self, time: float, width: int, height: int) -> Picture | None:
        """The picture at `time`, which must not go back: the first one before its time, the last for ever."""
        while self._next is not None and (self._shown is None or self._time(self._next) <= time + EARLY_S):
            self._show_next(self._next)
        if self._shown is None:
            return None
        if self._picture is None or self._picture.shape[:2] != (height, width):
            turns = round(self._shown.rotation / 90)
            self._picture = cover(self._shown, width, height, pixel_aspect=self._pixel_aspect(), turns=turns)
        return self._picture

    def close(self) -> None:
        """Let go of the file."""
        self._container.close()

    def _show_next(self, frame: av.VideoFrame) -> None:
        length = frame.duration * frame.time_base if frame.duration and frame.time_base else 0.04
        ends = self._time(frame) + float(length)
        self._shown, self._picture = frame, None
        self._num_shown += 1
        self._next = next(self._frames, None)
        if self._next is None:
            self.end = ends

    def _time(self, frame: av.VideoFrame) -> float:
        if frame.pts is None or frame.time_base is None:
            rate = self._stream.average_rate if self._stream else None
            return self._num_shown / float(rate or 25)
        return float(frame.pts * frame.time_base) - self.origin

    def _pixel_aspect(self) -> float:
        aspect = self._stream.sample_aspect_ratio if self._stream else None
        return float(aspect) if aspect else 1.0


def _open(path: Path) -> InputContainer:
    try:
        return av.open(str(path), "r")
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError | av.FFmpegError) else None
        raise MediaError(f"{path}: can't be read as media: {reason or error}") from error


def _audio_frames(container: InputContainer) -> Iterator[av.AudioFrame]:
    for stream in container.streams.audio:
        if stream.codec_context is not None and 0 < stream.sample_rate <= MAX_RATE:
            for frame in _decode(container, stream):
                if isinstance(frame, av.AudioFrame) and 0 < frame.sample_rate <= MAX_RATE:
                    yield frame
            return


def _pick_video(container: InputContainer) -> VideoStream | None:
    for stream in container.streams.video:
        if stream.codec_context is not None and not stream.disposition & Disposition.attached_pic:
            return stream
    return None


def _video_frames(container: InputContainer, stream: VideoStream | None) -> Iterator[av.VideoFrame]:
    if stream is not None:
        for frame in _decode(container, stream):
            if isinstance(frame, av.VideoFrame):
                yield frame


def _decode(
    container: InputContainer, stream: AudioStream | VideoStream
) -> Iterator[av.AudioFrame | av.VideoFrame]:
    damaged = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.FFmpegError as error:
            log.warning("%s: its %s stops early: %s", container.name, stream.type, error.strerror)
            return
        if packet is None:
            return
        try:
            frames = packet.decode()
        except av.FFmpegError as error:
            damaged += 1
            if damaged == 1:
                log.warning("%s: damaged %s, skipped: %s", container.name, stream.type, error.strerror)
            continue
        yield from (frame for frame in frames if isinstance(frame, av.AudioFrame | av.VideoFrame))


def _mono(frame: av.AudioFrame) -> Samples:
    """float32[samples]: the front channels' mean. Samples that are no number are silence."""
    (packed,) = av.AudioResampler("flt").resample(frame)  # not planar: PyAV 18 crashes on 8 planes
    channels = packed.to_ndarray().reshape(-1, frame.layout.nb_channels)[:, :NUM_FRONT]
    mean: Samples = channels.mean(axis=1, dtype=np.float32)
    return np.nan_to_num(mean, nan=0.0, posinf=1.0, neginf=-1.0)


def _to_pcm(samples: Samples) -> Pcm:
    return np.round(samples.clip(-1.0, 1.0) * 32767).astype(np.int16)


def _flush(resampler: soxr.ResampleStream | None) -> Iterator[Pcm]:
    if resampler is not None:
        yield _to_pcm(resampler.resample_chunk(np.zeros(0, np.float32), last=True))


def _silence(count: int) -> Iterator[Pcm]:
    while count > 0:
        yield np.zeros(min(count, SILENCE_CHUNK), np.int16)
        count -= SILENCE_CHUNK

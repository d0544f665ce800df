"""Writes a session to an MP4: H.264 and AAC on one timeline, that of the agent's unit numbers.

A unit that never came is there all the same, as the last frame and silence: sound and picture keep together,
the file is as long as the session was. It gets its name only when complete.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import queue
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.audio.stream import AudioStream
from av.container.output import OutputContainer
from av.video.stream import VideoStream

from client.decode import Pcm
from client.errors import RecordError, UsageError
from client.media import UserPart
from client.pictures import Picture, decode_jpeg, resize
from protocol.media import MediaUnit

log = logging.getLogger(__name__)

MAX_GAP_UNITS = 375  # a minute; a larger jump of the numbers is not a gap in the talk
MAX_USER_PARTS = 8  # the user's units that wait for one of the agent
MAX_WAITING = 64  # units on their way to the encoder, 5 s of both sides


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RecordFormat:
    """What the agent sends: picture size, frames a second and a unit, samples a second and a unit."""

    width: int
    height: int
    fps: Fraction
    frames_per_unit: int
    sample_rate: int
    samples_per_unit: int


class Recorder:
    """One recording. Not thread-safe: call it from one thread at a time, off the event loop (it encodes).

    Args:
        path: of the file to be; replaced if it is there.
        form: what the agent sends.
        both: put the user at the agent's left side and mix the voices.

    Raises:
        UsageError: when the folder does not exist or can't be written.
    """

    def __init__(self, path: Path, form: RecordFormat, *, both: bool = False) -> None:
        check_target(path)
        self._path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._form = form
        self._user = _UserSide(form) if both else None
        self._frame: Picture = np.zeros((form.height, form.width, 3), np.uint8)
        self._file: _Mp4 | None = None
        self._last_unit: int | None = None
        self.units = 0
        self.gaps = 0

    def add_user(self, part: UserPart) -> None:
        """The user's next unit, for a recording of both; ignored in one of the agent alone."""
        if self._user is not None:
            self._user.add(part)

    def add(self, unit: int, pcm: Pcm, frames: list[Picture]) -> None:
        """Agent unit number `unit`: `pcm` int16[samples], `frames` in order; either may be short or empty.

        A number that is not beyond the last one is ignored: nothing is written twice.

        Raises:
            RecordError: when the file can't be written.
        """
        if self._last_unit is None:
            self._last_unit = unit - 1
            if self._user is not None:
                self._user.begin()
        missing = unit - self._last_unit - 1
        if missing < 0:
            return
        if missing > MAX_GAP_UNITS:
            log.warning("unit numbers jump by %d: recorded without a gap", missing)
            missing = 0
        self.gaps += missing
        with self._writing():
            for _ in range(missing):
                self._write(np.zeros(0, np.int16), [])
            self._write(pcm, frames)
        self._last_unit = unit

    def close(self) -> bool:
        """Complete the file and give it its name. Returns False, and leaves nothing, when no unit came.

        Raises:
            RecordError: when the file can't be written.
        """
        if self._file is None:
            return False
        with self._writing():
            self._file.close()
            self._file = None
            self._part.replace(self._path)
        return True

    def _write(self, pcm: Pcm, frames: list[Picture]) -> None:
        form = self._form
        sound = np.zeros(form.samples_per_unit, np.int16)
        sound[: len(pcm)] = pcm[: form.samples_per_unit]
        shown = []
        for index in range(form.frames_per_unit):
            if frames:
                self._frame = resize(
                    frames[index * len(frames) // form.frames_per_unit], form.width, form.height
                )
            shown.append(self._frame)
        if self._user is not None:
            sound, shown = self._user.join(sound, shown)
        if self._file is None:
            self._file = _Mp4(self._part, form, width=shown[0].shape[1], height=shown[0].shape[0])
        self._file.write(sound, shown)
        self.units += 1

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (av.FFmpegError, OSError) as error:
            self._file = None
            self._part.unlink(missing_ok=True)
            raise RecordError(f"{self._path}: can't be written: {error.strerror or error}") from error


def check_target(path: Path) -> None:
    """See that a file can be made at `path`.

    Raises:
        UsageError: when it can't.
    """
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: can't be written")


class _UserSide:
    """The user's units, one beside each of the agent's; they begin with what the user does just then.

    When a unit of the user comes late its place is the last frame and silence, and it follows in the next.
    """

    def __init__(self, form: RecordFormat) -> None:
        self._size = (form.width, form.height)
        self._parts: collections.deque[UserPart] = collections.deque(maxlen=1)
        self._frame: Picture = np.zeros((form.height, form.width, 3), np.uint8)

    def add(self, part: UserPart) -> None:
        self._parts.append(part)

    def begin(self) -> None:
        self._parts = collections.deque(self._parts, maxlen=MAX_USER_PARTS)

    def join(self, pcm: Pcm, frames: list[Picture]) -> tuple[Pcm, list[Picture]]:
        part = self._parts.popleft() if self._parts else None
        joined = []
        for index, agent in enumerate(frames):
            if part is not None and part.frames:
                self._frame = resize(part.frames[index * len(part.frames) // len(frames)], *self._size)
            joined.append(np.hstack([self._frame, agent]))
        if part is None:
            return pcm, joined
        mixed = pcm.astype(np.int32)
        count = min(len(mixed), len(part.pcm))
        mixed[:count] += part.pcm[:count]
        return mixed.clip(-32768, 32767).astype(np.int16), joined


class _Mp4:
    """The two encoders and the file. H.264 wants even sizes: an odd edge is doubled."""

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

    def write(self, pcm: Pcm, frames: list[Picture]) -> None:
        for picture in frames:
            frame = av.VideoFrame.from_ndarray(np.pad(picture, self._pad, mode="edge"), "rgb24")
            frame.pts, frame.time_base = self._num_frames, self._frame_time
            self._num_frames += 1
            self._container.mux(self._video.encode(frame))
        sound = av.AudioFrame.from_ndarray(pcm[None], "s16", "mono")
        sound.sample_rate = self._sample_time.denominator
        sound.pts, sound.time_base = self._num_samples, self._sample_time
        self._num_samples += len(pcm)
        self._container.mux(self._audio.encode(sound))

    def close(self) -> None:
        self._container.mux(self._video.encode(None))
        self._container.mux(self._audio.encode(None))
        self._container.close()


class RecordingThread:
    """A recorder with a thread of its own, so that encoding never holds up the event loop.

    When the machine can't keep up, units are lost to the recording (as gaps), not to the talk.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._queue: queue.Queue[MediaUnit | UserPart | None] = queue.Queue(MAX_WAITING)
        self._error: RecordError | None = None
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def put(self, what: MediaUnit | UserPart) -> None:
        """Record a unit of the agent, or note one of the user."""
        try:
            self._queue.put_nowait(what)
        except queue.Full:
            self._lost += 1
            if self._lost == 1:
                log.warning("the recording can't keep up: units are missing in it")

    def finish(self) -> bool:
        """Write what waits and complete the file; False when there is none because no unit came. Blocks.

        Raises:
            RecordError: when the file can't be written, now or at any time before.
        """
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._recorder.close()

    def _work(self) -> None:
        while (what := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                if isinstance(what, UserPart):
                    self._recorder.add_user(what)
                else:
                    pcm = np.frombuffer(what.audio, "<i2")
                    self._recorder.add(what.unit, pcm, _pictures(what))
            except RecordError as error:
                log.error("%s", error)
                self._error = error


def _pictures(unit: MediaUnit) -> list[Picture]:
    pictures = []
    for coded in unit.frames:
        try:
            pictures.append(decode_jpeg(coded))
        except ValueError:
            log.warning("unit %d: a picture that is no JPEG", unit.unit)
    return pictures

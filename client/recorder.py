"""Writes a session to an MP4: H.264 and AAC on one timeline, that of the user.

Time 0 is when the user's first unit begins; the agent stands where the user hears it. A unit that never came
is there all the same, as the last frame and silence: sound and picture keep together, the file is as long as
the session was. It gets its name only when complete.
"""

import collections
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from client.decode import Pcm
from client.errors import RecordError, UsageError
from client.media import UserPart
from client.mp4 import Frame, Mp4, RecordFormat
from client.pictures import Picture, resize

log = logging.getLogger(__name__)

MAX_GAP_UNITS = 375  # a minute; a larger jump of the numbers is not a gap of the session
MAX_DELAY_S = 60.0  # of the agent's first unit
MAX_USER_FRAMES = 256  # that wait for the agent's, 10 s
MAX_AGENT_FRAMES = 50  # that wait for the user's, 2 s; then the user is left out


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
        self._waiting: collections.deque[Frame] = collections.deque()
        self._file: Mp4 | None = None
        self._last_unit: int | None = None
        self.delay_s = 0.0
        """How much later than the user's first unit the agent's first one is heard; set it before that."""
        self.units = 0
        self.gaps = 0

    def add_user(self, part: UserPart) -> None:
        """The user's next unit, for a recording of both; ignored in one of the agent alone.

        Raises:
            RecordError: when the file can't be written.
        """
        if self._user is not None:
            self._user.add(part)
            with self._writing():
                self._write_what_is_complete()

    def add(self, unit: int, pcm: Pcm, frames: list[Picture]) -> None:
        """Agent unit number `unit`: `pcm` int16[samples], `frames` in order; either may be short or empty.

        A number that is not beyond the last one is ignored: nothing is written twice.

        Raises:
            RecordError: when the file can't be written.
        """
        if self._last_unit is None:
            self._last_unit = unit - 1
            self._wait_for_first(frames)
        missing = unit - self._last_unit - 1
        if missing < 0:
            return
        if missing > MAX_GAP_UNITS:
            log.warning("unit numbers jump by %d: recorded without a gap", missing)
            missing = 0
        self.gaps += missing
        with self._writing():
            for _ in range(missing):
                self._take_in(np.zeros(0, np.int16), [])
            self._take_in(pcm, frames)
        self._last_unit = unit

    def close(self) -> bool:
        """Complete the file and give it its name. Returns False, and leaves nothing, when no unit came.

        Raises:
            RecordError: when the file can't be written.
        """
        with self._writing():
            while self._waiting:
                self._write_frame()
            if self._file is None:
                return False
            self._file.close()
            self._file = None
            self._part.replace(self._path)
        return True

    def _wait_for_first(self, frames: list[Picture]) -> None:
        """Until the agent is heard it shows what it shows first."""
        form = self._form
        if frames:
            self._frame = resize(frames[0], form.width, form.height)
        silent = Frame(np.zeros(form.samples_per_frame, np.int16), self._frame)
        self._waiting.extend([silent] * round(min(self.delay_s, MAX_DELAY_S) * form.fps))

    def _take_in(self, pcm: Pcm, frames: list[Picture]) -> None:
        form = self._form
        sound = np.zeros(form.samples_per_unit, np.int16)
        sound[: len(pcm)] = pcm[: form.samples_per_unit]
        for index, part in enumerate(np.split(sound, form.frames_per_unit)):
            if frames:
                self._frame = resize(
                    frames[index * len(frames) // form.frames_per_unit], form.width, form.height
                )
            self._waiting.append(Frame(part, self._frame))
        self.units += 1
        self._write_what_is_complete()

    def _write_what_is_complete(self) -> None:
        while self._waiting and (
            self._user is None or self._user.ready or len(self._waiting) > MAX_AGENT_FRAMES
        ):
            self._write_frame()

    def _write_frame(self) -> None:
        frame = self._waiting.popleft()
        if self._user is not None:
            frame = self._user.join(frame)
        if self._file is None:
            height, width, _ = frame.picture.shape
            self._file = Mp4(self._part, self._form, width=width, height=height)
        self._file.write(frame)

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
    """The user's frames that are not written yet; frame n of the user belongs to frame n of the file."""

    def __init__(self, form: RecordFormat) -> None:
        self._form = form
        self._frames: collections.deque[Frame] = collections.deque(maxlen=MAX_USER_FRAMES)
        self._picture: Picture = np.zeros((form.height, form.width, 3), np.uint8)
        self._left_out = 0  # frames that were written without the user; theirs come too late

    @property
    def ready(self) -> bool:
        """Whether the next frame is there."""
        return bool(self._frames)

    def add(self, part: UserPart) -> None:
        form = self._form
        sound = np.zeros(form.samples_per_unit, np.int16)
        sound[: len(part.pcm)] = part.pcm[: form.samples_per_unit]
        for index, piece in enumerate(np.split(sound, form.frames_per_unit)):
            picture = self._picture
            if part.frames:
                picture = part.frames[index * len(part.frames) // form.frames_per_unit]
            self._picture = resize(picture, form.width, form.height)
            if self._left_out:
                self._left_out -= 1
            else:
                self._frames.append(Frame(piece, self._picture))

    def join(self, agent: Frame) -> Frame:
        """The two side by side and together; without a frame of the user their last picture, and silence."""
        if not self._frames:
            self._left_out += 1
            return Frame(agent.pcm, np.hstack([self._picture, agent.picture]))
        user = self._frames.popleft()
        mixed = (agent.pcm.astype(np.int32) + user.pcm).clip(-32768, 32767).astype(np.int16)
        return Frame(mixed, np.hstack([user.picture, agent.picture]))

"""The user's part, one unit at a time: from any media file, or silence.

`MediaSource` is what the session asks for the user's part; `client.devices` has the one with camera and
microphone.
"""

import dataclasses
from pathlib import Path
from typing import Protocol

import numpy as np

from client.decode import AudioReader, Pcm, VideoReader
from client.errors import MediaError
from client.pictures import Picture

RATE = 16_000
FPS = 25
UNIT_S = 0.16
UNIT_SAMPLES = 2_560
UNIT_FRAMES = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class UserPart:
    """One unit of the user: `pcm` int16[2560] at 16 kHz, `frames` four uint8[height, width, 3] or none."""

    pcm: Pcm
    frames: list[Picture]


class MediaSource(Protocol):
    """Where the user's part comes from.

    Attributes:
        live: True when `take` itself waits until a unit has been recorded; else the caller keeps the time.
    """

    live: bool

    @property
    def has_camera(self) -> bool:
        """Whether frames will come."""

    @property
    def has_microphone(self) -> bool:
        """Whether there is sound of a user."""

    def begin(self, width: int, height: int) -> None:
        """The session starts now, and frames shall be of this size; before the first `take`."""

    def take(self) -> UserPart:
        """The next unit. May block on decoding or recording: call it off the event loop."""

    @property
    def ended(self) -> bool:
        """Whether the user's part is over; `take` goes on with silence and the last frame all the same."""

    def close(self) -> None:
        """Let go of files and devices."""


class SilentUser:
    """A user without camera and microphone, who can only type."""

    live = False
    has_camera = False
    has_microphone = False
    ended = False

    def begin(self, width: int, height: int) -> None:
        """There is no picture."""

    def take(self) -> UserPart:
        """Silence."""
        return UserPart(pcm=np.zeros(UNIT_SAMPLES, np.int16), frames=[])

    def close(self) -> None:
        """Nothing to let go of."""


class FileUser:
    """A media file plays the user's part: 16 kHz mono, 25 frames a second whatever the file has.

    Both tracks start at the beginning of the earlier one; without sound there is silence, without video there
    are no frames. A picture alone is shown for ever.

    Raises:
        MediaError: on opening, when the file is missing, is no media, or holds nothing that can be decoded.
    """

    live = False

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise MediaError(f"{path}: no such file")
        if not path.is_file():
            raise MediaError(f"{path}: not a file")
        if path.stat().st_size == 0:
            raise MediaError(f"{path}: the file is empty")
        self._audio = AudioReader(path, rate=RATE)
        self._video = VideoReader(path)
        starts = [start for start in (self._audio.start, self._video.start) if start is not None]
        if not starts:
            self.close()
            raise MediaError(f"{path}: holds neither sound nor picture that can be decoded")
        self._audio.origin = self._video.origin = min(starts)
        self._width = self._height = 64
        self._unit = 0
        self._sound_ended = not self.has_microphone

    @property
    def has_camera(self) -> bool:
        """Whether the file has video or is a picture."""
        return self._video.start is not None

    @property
    def has_microphone(self) -> bool:
        """Whether the file has sound."""
        return self._audio.start is not None

    def begin(self, width: int, height: int) -> None:
        """Frames are scaled to cover this size and cut to it in the middle."""
        self._width, self._height = width, height

    def take(self) -> UserPart:
        """The next unit; after the end silence and the last frame."""
        pcm = self._audio.read(UNIT_SAMPLES)
        if len(pcm) < UNIT_SAMPLES:
            self._sound_ended = True
            pcm = np.concatenate([pcm, np.zeros(UNIT_SAMPLES - len(pcm), np.int16)])
        frames = []
        for index in range(UNIT_FRAMES):
            time = (self._unit * UNIT_FRAMES + index) / FPS
            picture = self._video.picture_at(time, self._width, self._height)
            if picture is not None:
                frames.append(picture)
        self._unit += 1
        return UserPart(pcm=pcm, frames=frames)

    @property
    def ended(self) -> bool:
        """Whether both tracks have been given out; never for a picture alone."""
        if not self.has_camera:
            return self._sound_ended
        if self._video.end is None or (self._video.still and not self.has_microphone):
            return False
        return self._sound_ended and self._unit * UNIT_S >= self._video.end - 1e-6

    def close(self) -> None:
        """Let go of the file."""
        self._audio.close()
        self._video.close()

"""The inbox of one session: the server puts in what arrives, the model thread takes one unit per tick.

    sound    continuous; a gap is filled with silence and counted
    picture  the latest frames win
    text     first in, first out, bounded

Everything is bounded, whatever the client does. One lock guards it, held only while samples are copied.
"""

import threading
from collections import deque

import numpy as np
import numpy.typing as npt

from protocol.messages import MAX_TEXT_CHARS
from shared.media import Media
from shared.models.family import UserUnit
from thinker.server.metrics import ServerMetrics

MAX_BACKLOG_UNITS = 4
# Of text that waits: the model thread takes it all in one unit, while the units of other sessions are due.
MAX_TEXTS = 32
MAX_WAITING_CHARS = MAX_TEXT_CHARS
# Sound that lay waiting through so many units was never needed against jitter: it is delay for nothing.
STANDING_UNITS = 25


class Inbox:
    """What the user sent and the model has not yet seen. Safe for any number of threads on either side.

    Samples that are missing (from the first sound on: no microphone, no gap) or dropped are counted.
    """

    def __init__(self, media: Media, metrics: ServerMetrics) -> None:
        self._unit_samples = media.input_unit_samples
        self._frame_shape = (media.input_height, media.input_width, 3)
        self._lock = threading.Lock()
        self._sound = _SoundQueue(self._unit_samples, metrics)
        self._num_frames = media.frames_per_unit
        self._fresh: deque[npt.NDArray[np.uint8]] = deque(maxlen=self._num_frames)
        self._last_frame: npt.NDArray[np.uint8] = np.zeros(self._frame_shape, np.uint8)
        self._texts: list[str] = []
        self._interrupted = False
        self._epoch = 0
        self._begun = False

    def push_audio(self, pcm: npt.NDArray[np.int16]) -> None:
        """Append sound, int16 [samples] at the model's rate; beyond four units the oldest is dropped.

        The last that is pushed of a unit of the user, also where it holds no sound.
        """
        with self._lock:
            self._sound.push(pcm)
            self._begun = True

    def push_frames(self, frames: npt.NDArray[np.uint8]) -> None:
        """Append pictures, uint8 [n, height, width, 3] RGB, oldest first; only the latest of a unit are kept.

        Raises:
            ValueError: the frames are not of the inbox's size.
        """
        if frames.shape[1:] != self._frame_shape:
            raise ValueError(f"frames are {frames.shape[1:]}, the inbox holds {self._frame_shape}")
        copies = frames.copy()
        with self._lock:
            self._fresh.extend(copies)

    def push_text(self, text: str) -> bool:
        """Queue one line of text; false (and nothing kept) where too many lines or characters would wait."""
        with self._lock:
            if len(self._texts) >= MAX_TEXTS:
                return False
            if sum(map(len, self._texts)) + len(text) > MAX_WAITING_CHARS:
                return False
            self._texts.append(text)
            return True

    def interrupt(self) -> tuple[int, list[str]]:
        """The user cuts the agent short. Returns the new epoch and the lines that are lost: not yet taken."""
        with self._lock:
            lost, self._texts = self._texts, []
            self._interrupted = True
            self._epoch += 1
            return self._epoch, lost

    def backlog(self) -> tuple[int, int, int]:
        """Samples, fresh frames and lines that wait to be taken."""
        with self._lock:
            return self._sound.waiting, len(self._fresh), len(self._texts)

    def lacking(self) -> bool:
        """Whether nothing has come yet, or sound that flows is short of a unit."""
        with self._lock:
            return not self._begun or self._sound.short

    def take(self) -> UserUnit:
        """The unit that is due: never waits, fills with silence and the last picture what has not arrived."""
        pcm = np.zeros(self._unit_samples, np.int16)
        with self._lock:
            self._sound.take_into(pcm)
            fresh = tuple(self._fresh)
            self._fresh.clear()
            texts, self._texts = tuple(self._texts), []
            interrupted, self._interrupted = self._interrupted, False
            epoch = self._epoch
        frames = self._spread(fresh)
        pcm_float = pcm.astype(np.float32) / np.float32(32768)
        return UserUnit(pcm=pcm_float, frames=frames, texts=texts, interrupted=interrupted, epoch=epoch)

    def _spread(self, fresh: tuple[npt.NDArray[np.uint8], ...]) -> npt.NDArray[np.uint8]:
        """Stretch the fresh frames evenly over the unit, the newest always last."""
        if fresh:
            self._last_frame = fresh[-1]
        else:
            fresh = (self._last_frame,)
        n = self._num_frames
        return np.stack([fresh[-(-(i + 1) * len(fresh) // n) - 1] for i in range(n)])


class _SoundQueue:
    """Samples that wait: hides jitter without letting delay pile up. The inbox's lock guards it."""

    def __init__(self, unit_samples: int, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._unit = unit_samples
        self._capacity = MAX_BACKLOG_UNITS * unit_samples
        self._pcm = np.zeros(0, np.int16)
        self._started = False  # some sound has come at all
        self._flowing = False  # a whole unit has come since the last time that it ran dry
        self._lowest_left = self._capacity
        self._takes = 0

    @property
    def waiting(self) -> int:
        """Samples."""
        return self._pcm.size

    @property
    def short(self) -> bool:
        """Whether a unit is due that would have a hole, after one that had none."""
        return self._flowing and self.waiting < self._unit

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        self._pcm = np.concatenate([self._pcm, pcm])
        self._drop(max(0, self.waiting - self._capacity))
        self._started = self._started or pcm.size > 0

    def take_into(self, out: npt.NDArray[np.int16]) -> None:
        """Copy the oldest unit, or what there is of it, to the front of `out`."""
        # From dry, sound waits for a whole unit: else every packet that is a little late tears a hole.
        self._flowing = self.waiting >= self._unit or (self._flowing and self.waiting > 0)
        count = min(self.waiting, self._unit) if self._flowing else 0
        out[:count] = self._pcm[:count]
        self._pcm = self._pcm[count:]
        if self._started:
            self._metrics.missing_samples.inc(self._unit - count)
        self._trim_standing()

    def _trim_standing(self) -> None:
        """After a burst, or with a microphone that runs fast, drop the sound that only ever waits."""
        self._lowest_left = min(self._lowest_left, self.waiting)
        self._takes += 1
        if self._takes < STANDING_UNITS:
            return
        if self._lowest_left > self._unit // 2:
            self._drop(self._lowest_left)
        self._takes = 0
        self._lowest_left = self._capacity

    def _drop(self, count: int) -> None:
        self._metrics.dropped_samples.inc(count)
        self._pcm = self._pcm[count:]

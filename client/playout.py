"""The jitter buffer of the agent's sound and pictures. Sound is the master clock, pictures follow it.

Pure code: units go in from the network, a sound device (or `run`, which counts time where there is none)
pulls samples out, and whoever paints asks for the picture that is due. Time passes only as samples are
pulled, so sound and picture can't drift apart.

Playing begins with the first whole unit and a head start of silence. When the buffer runs dry the sound
fades out and waits for the next unit and a smaller head start; when so much waits that the sound would lag
behind, the oldest units are dropped. Edges fade, so that none of it clicks.
"""

import collections
import dataclasses
import threading
from collections.abc import Sequence

import numpy as np

from client.decode import Pcm

FADE_MS = 5


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PlayoutLimits:
    """In ms: silence before the first unit, silence after running dry, and the most that may wait."""

    head_start_ms: int = 80
    refill_ms: int = 40
    most_ms: int = 640


@dataclasses.dataclass(frozen=True, slots=True)
class DueFrame:
    """A coded picture to paint now; `skew_ms` is its media time minus the media time that is heard."""

    coded: bytes
    pts_us: int
    skew_ms: float


class Playout:
    """Thread-safe: the network pushes, a sound device's own thread pulls, a third may paint."""

    def __init__(self, *, sample_rate: int, unit_us: int, limits: PlayoutLimits | None = None) -> None:
        self._rate = sample_rate
        self._unit_us = unit_us
        self._limits = limits or PlayoutLimits()
        self._fade = np.linspace(0.0, 1.0, sample_rate * FADE_MS // 1000, dtype=np.float32)
        self._lock = threading.Lock()
        self._units: collections.deque[tuple[int, Pcm]] = collections.deque()
        self._frames: collections.deque[tuple[int, bytes]] = collections.deque()
        self._offset = 0  # samples of the oldest unit that have been played
        self._position_us: int | None = None  # media time of the next sample; None before the first
        self._playing = False
        self._silence = self._samples(self._limits.head_start_ms)  # still to come before playing
        self._joins = True  # the next sample does not follow the last one played
        self._last_level = 0.0
        self._skews: collections.Counter[int] = collections.Counter()
        self.latency_us = 0  # between pulling a sample and hearing it; the device knows
        self.underruns = 0
        self.skipped_units = 0

    def push(self, pts_us: int, pcm: Pcm, frames: Sequence[bytes]) -> None:
        """A unit arrived: media time, int16 sound (empty: silence), coded frames spread over the unit."""
        if not len(pcm):
            pcm = np.zeros(self._unit_us * self._rate // 1_000_000, np.int16)
        with self._lock:
            self._units.append((pts_us, pcm))
            for index, coded in enumerate(frames):
                self._frames.append((pts_us + index * self._unit_us // len(frames), coded))
            while len(self._units) > 1 and self._buffered_ms() > self._limits.most_ms:
                self._units.popleft()
                self._offset = 0
                self.skipped_units += 1

    def pull(self, count: int) -> Pcm:
        """int16[count]: the next samples to be heard, silence where there are none."""
        out = np.zeros(count, np.int16)
        with self._lock:
            at = self._wait(count)
            while self._playing and at < count:
                if self._units:
                    at = self._play(out, at)
                else:
                    self._playing = False
                    self._silence = self._samples(self._limits.refill_ms)
                    self.underruns += 1
            if at < count and self._last_level:
                self._fade_out(out[at:])
        return out

    def flush(self) -> None:
        """The agent was interrupted: what waits is void, the sound fades out."""
        with self._lock:
            self._units.clear()
            self._frames.clear()
            self._offset = 0
            self._playing = False
            self._silence = self._samples(self._limits.refill_ms)

    def due_frame(self) -> DueFrame | None:
        """The picture that belongs to what is heard now; None when it has been given out already."""
        with self._lock:
            heard = self._heard_us()
            if heard is None:
                return None
            due = None
            while self._frames and self._frames[0][0] <= heard:
                due = self._frames.popleft()
            if due is None:
                return None
            skew_ms = (due[0] - heard) / 1000
            self._skews[round(abs(skew_ms))] += 1
            return DueFrame(due[1], due[0], skew_ms)

    @property
    def head_start_s(self) -> float:
        """From the arrival of the first unit until it is heard."""
        return self._limits.head_start_ms / 1000 + self.latency_us / 1e6

    @property
    def heard_us(self) -> int | None:
        """Media time that is heard now, in microseconds; None before the first sound."""
        with self._lock:
            return self._heard_us()

    @property
    def buffered_ms(self) -> float:
        """Sound that waits to be played."""
        with self._lock:
            return self._buffered_ms()

    def skew_ms(self) -> dict[str, float] | None:
        """Median and largest distance of painted pictures from the sound, to 1 ms; None without pictures."""
        with self._lock:
            half = self._skews.total() / 2
            below = 0
            for skew in sorted(self._skews):
                below += self._skews[skew]
                if below >= half:
                    return {"p50": float(skew), "max": float(max(self._skews))}
        return None

    def _wait(self, count: int) -> int:
        """Count down the silence before playing; returns how much of this pull stays silent."""
        if self._playing:
            return 0
        if not self._units:
            return count
        silent = min(self._silence, count)
        self._silence -= silent
        self._playing = self._joins = self._silence == 0
        return silent

    def _play(self, out: Pcm, at: int) -> int:
        """Copy what the oldest unit has for out[at:]; returns where it ends."""
        pts_us, pcm = self._units[0]
        piece = out[at : at + len(pcm) - self._offset]
        piece[:] = pcm[self._offset : self._offset + len(piece)]
        start_us = self._media_time(pts_us)
        if self._joins or self._position_us is None or abs(start_us - self._position_us) > 1000:
            self._fade_in(piece)
        self._joins = False
        self._last_level = float(piece[-1])
        self._offset += len(piece)
        self._position_us = self._media_time(pts_us)
        if self._offset == len(pcm):
            self._units.popleft()
            self._offset = 0
        return at + len(piece)

    def _fade_in(self, sound: Pcm) -> None:
        rising = self._fade[: len(sound)]
        sound[: len(rising)] = sound[: len(rising)] * rising + self._last_level * (1 - rising)

    def _fade_out(self, silence: Pcm) -> None:
        falling = 1 - self._fade[: len(silence)]
        silence[: len(falling)] = self._last_level * falling
        self._last_level = 0.0

    def _media_time(self, pts_us: int) -> int:
        return pts_us + self._offset * 1_000_000 // self._rate

    def _heard_us(self) -> int | None:
        return None if self._position_us is None else self._position_us - self.latency_us

    def _buffered_ms(self) -> float:
        return (sum(len(pcm) for _, pcm in self._units) - self._offset) * 1000 / self._rate

    def _samples(self, milliseconds: int) -> int:
        return milliseconds * self._rate // 1000

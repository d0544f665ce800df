"""Measures of sound: how loud it is, and when."""

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

RATE = 16_000
WINDOW = 160  # samples: 10 ms
HEARD_DBFS = -45.0  # what is louder is heard
FLOOR_DB = -100.0


def decibels(pcm: NDArray[np.float32]) -> float:
    """RMS level of sound in [-1, 1], in dB below full scale."""
    power = float(np.mean(pcm.astype(np.float64) ** 2))
    return max(FLOOR_DB, 10 * float(np.log10(power + 1e-12)))


def loud(pcm_N: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether each window of 10 ms can be heard, [N / 160]."""
    windows = pcm_N[: len(pcm_N) // WINDOW * WINDOW].reshape(-1, WINDOW).astype(np.float64)
    return np.asarray((windows**2).mean(1) > 10 ** (HEARD_DBFS / 10))


def seconds(windows: NDArray[np.bool_]) -> float:
    """How long something holds that is known for windows of 10 ms."""
    return float(windows.sum()) * WINDOW / RATE


def within(spans: list[tuple[float, float]], num_windows: int) -> NDArray[np.bool_]:
    """Windows of 10 ms that begin in one of the (start, end) in seconds."""
    at = np.arange(num_windows) * WINDOW / RATE
    inside = np.zeros(num_windows, bool)
    for start, end in spans:
        inside |= (at >= start) & (at < end)
    return inside


def read_sound(path: Path) -> NDArray[np.float32]:
    """All sound of a media file at 16 kHz mono [N], in [-1, 1]; raises what opening and decoding raise."""
    with av.open(str(path)) as file:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        parts = [
            np.asarray(part.to_ndarray(), np.float32).ravel()
            for frame in [*file.decode(audio=0), None]
            for part in resampler.resample(frame)
        ]
    return np.concatenate(parts) / np.float32(32768)

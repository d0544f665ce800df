"""Sound as files to listen to."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16_000


def write_wav(path: Path, pcm_N: NDArray[np.float32]) -> None:
    """Write sound in [-1, 1] at 16 kHz as mono PCM16."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(pcm_N, -1, 1) * 32767).astype("<i2").tobytes())

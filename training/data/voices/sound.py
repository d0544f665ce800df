"""What spoken sentences go through: resampled, trimmed to what is audible, brought to one level."""

import wave
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

RATE = 16_000
SPEECH_RMS = 0.1  # -20 dBFS, over the whole sentence
AUDIBLE = 0.01  # -40 dB below the loudest window
WINDOW = 80  # samples: 5 ms


def read_wave(path: Path) -> tuple[NDArray[np.float32], int]:
    """The sound [N] in [-1, 1] of a mono 16-bit WAV file, and its rate."""
    with wave.open(str(path)) as file:
        raw = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return raw.astype(np.float32) / 32768.0, file.getframerate()


def write_wav(path: Path, pcm_N: NDArray[np.float32]) -> None:
    """Write sound in [-1, 1] at 16 kHz as mono PCM16."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(pcm_N, -1, 1) * 32767).astype("<i2").tobytes())


def finish(
    pcm: NDArray[np.float32], rate: int, phones: list[tuple[str, float]] | None, *, warp: float = 1.0
) -> tuple[NDArray[np.float32], list[tuple[str, float]] | None]:
    """Bring one sentence to 16 kHz and -20 dBFS, with no silence before or after it.

    Args:
        pcm: sound [N] at `rate`.
        rate: in Hz.
        phones: (phone, end in seconds) in order; their times follow the sound.
        warp: as if played so many times as fast: pitch and formants rise, the sentence gets shorter.

    Returns:
        sound [M], which ends where speech is last audible, and its phones without pauses around them.
    """
    pcm = soxr.resample(pcm, rate * warp, RATE, "MQ") if rate * warp != RATE else pcm
    first, last = audible(pcm)
    if phones is not None:
        shifted = [(name, end / warp - first / RATE) for name, end in phones]
        length_s = (last - first) / RATE
        phones, start = [], 0.0
        for name, end in shifted:
            end = min(end, length_s)  # noqa: PLW2901
            if end > start:
                phones.append((name, end))
                start = end
        while phones and phones[-1][0] == "pau":
            phones.pop()
        if phones and phones[0][0] == "pau":  # what is audible of a breath before the first is its own
            phones = phones[1:]
        if phones:  # what little rings after the last phone is its own
            phones[-1] = (phones[-1][0], length_s)
    pcm = pcm[first:last]
    pcm = pcm * (SPEECH_RMS / max(float(np.sqrt(np.mean(pcm**2))), 1e-4))
    return np.clip(pcm, -0.99, 0.99).astype(np.float32), phones


def audible(pcm: NDArray[np.float32]) -> tuple[int, int]:
    """First and one past the last sample of what is at most 40 dB below the loudest 5 ms."""
    whole = np.pad(pcm, (0, -len(pcm) % WINDOW)).reshape(-1, WINDOW)
    level = np.sqrt(np.mean(whole**2, axis=1))
    loud = np.flatnonzero(level > AUDIBLE * level.max())
    if not len(loud):
        return 0, len(pcm)
    return int(loud[0]) * WINDOW, min(int(loud[-1] + 1) * WINDOW, len(pcm))

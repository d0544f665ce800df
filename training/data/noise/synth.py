"""Small tools of sound synthesis, shared by noise, music and rooms. All sound is float32 at 16 kHz."""

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
Sound = NDArray[np.float32]

# Curves over frequency are worked out at few points and joined with straight lines: 0.3 ms, not 3.
POINTS_HZ = np.concatenate([[0.0], np.geomspace(20, RATE / 2, 160)])
TABLE_SIZE = 1024
BLOCK = 320  # 20 ms, over which loudness is measured


def decibels(level_db: float) -> float:
    """The factor of amplitude for a level in dB."""
    return float(10.0 ** (level_db / 20))


def rms(pcm: Sound) -> float:
    """Root mean square of a sound [N]; 0 for none."""
    return float(np.sqrt(np.dot(pcm, pcm) / max(len(pcm), 1)))


def loudness(pcm: Sound) -> float:
    """RMS of the loudest tenth of 20 ms blocks, so that rare knocks and steady noise compare."""
    blocks = pcm[: len(pcm) // BLOCK * BLOCK].reshape(-1, BLOCK)
    power = np.sort(np.einsum("nb,nb->n", blocks, blocks))[-max(1, len(blocks) // 10) :]
    return float(np.sqrt(power.mean() / BLOCK)) if len(blocks) else rms(pcm)


def at_loudness(pcm: Sound, wanted: float) -> Sound:
    """The sound [N], scaled to a loudness; silence stays silence."""
    found = loudness(pcm)
    return pcm * np.float32(wanted / found) if found > 0 else pcm


def curve(gains_at_points: NDArray[np.float64], num_bins: int) -> Sound:
    """Gains at `POINTS_HZ` drawn over the bins 0 to 8 kHz of a real FFT, [num_bins]."""
    bins_hz = np.linspace(0, RATE / 2, num_bins)
    return np.interp(bins_hz, POINTS_HZ, gains_at_points).astype(np.float32)


def band(low_hz: float, high_hz: float, order: float) -> NDArray[np.float64]:
    """Magnitudes at `POINTS_HZ` of a Butterworth high-pass at `low_hz` and low-pass at `high_hz`."""
    f = np.maximum(POINTS_HZ, 1.0)
    gains: NDArray[np.float64] = 1 / np.sqrt(
        (1 + (low_hz / f) ** (2 * order)) * (1 + (f / high_hz) ** (2 * order))
    )
    return gains


def bumps(rng: np.random.Generator, spread_db: float) -> NDArray[np.float64]:
    """A random smooth colouring at `POINTS_HZ`: eight knots over log frequency, 1 sigma of `spread_db`."""
    knots = np.geomspace(20, RATE / 2, 8)
    levels_db = np.interp(np.log(np.maximum(POINTS_HZ, 20)), np.log(knots), rng.normal(0, spread_db, 8))
    gains: NDArray[np.float64] = 10 ** (levels_db / 20)
    return gains


def fft_size(num: int) -> int:
    """The least length >= `num` of the form k * 2^n with k <= 16, whose transform is quick."""
    step = 1 << max(num.bit_length() - 4, 0)
    return -(-num // step) * step


def spectrum_of(pcm: Sound, size: int) -> NDArray[np.complex64]:
    """Real FFT [size / 2 + 1] of a sound, padded to `size`.

    By way of float64: numpy 2.4's forward transform of float32 is slower (its inverse is not).
    """
    return np.fft.rfft(pcm.astype(np.float64), size).astype(np.complex64)


def noise_of(rng: np.random.Generator, gains_at_points: NDArray[np.float64], num: int) -> Sound:
    """Gaussian noise [num] with the given spectrum, of RMS 1."""
    size = fft_size(max(num, 2))
    num_bins = size // 2 + 1
    spectrum = rng.standard_normal(2 * num_bins, np.float32).view(np.complex64)
    spectrum *= curve(gains_at_points, num_bins)
    pcm = np.fft.irfft(spectrum, size)[:num].astype(np.float32, copy=False)
    return pcm * np.float32(1 / max(rms(pcm), 1e-9))


def swell(rng: np.random.Generator, num: int, depth_db: float, period_s: float) -> Sound:
    """A slowly wandering gain [num]: random knots every `period_s`, `depth_db` apart (1 sigma)."""
    num_knots = int(num / RATE / period_s) + 3
    gains = 10 ** (rng.normal(0, depth_db, num_knots) / 20)
    offset = rng.uniform()
    where = np.linspace(offset, offset + num / RATE / period_s, num)
    return np.interp(where, np.arange(num_knots), gains).astype(np.float32)


def wavetable(amplitudes: NDArray[np.float64], rng: np.random.Generator) -> Sound:
    """One period [TABLE_SIZE] with harmonics 1, 2, ... of the given amplitudes and random phases; RMS 1."""
    spectrum = np.zeros(TABLE_SIZE // 2 + 1, np.complex64)
    usable = amplitudes[: TABLE_SIZE // 2]
    spectrum[1 : len(usable) + 1] = usable * np.exp(2j * np.pi * rng.random(len(usable)))
    table = np.fft.irfft(spectrum).astype(np.float32, copy=False)
    return table * np.float32(1 / max(rms(table), 1e-9))


def play(table: Sound, cycles_N: NDArray[np.float64] | Sound) -> Sound:
    """Read a wavetable at the phases `cycles_N` (in periods, rising from 0)."""
    return table.take((cycles_N * TABLE_SIZE).astype(np.int32) & (TABLE_SIZE - 1))


def add_at(track: Sound, start: int, pcm: Sound) -> None:
    """Add a sound to a track in place from sample `start` >= 0; what hangs over the end is lost."""
    end = min(start + len(pcm), len(track))
    if end > start:
        track[start:end] += pcm[: end - start]

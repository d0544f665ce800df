"""Rooms and microphones: what happens to a sound between a mouth and the runtime."""

import numpy as np

from training.data.noise.synth import (
    POINTS_HZ,
    RATE,
    Sound,
    band,
    bumps,
    curve,
    decibels,
    fft_size,
    rms,
    spectrum_of,
)

RT60_S = (0.1, 0.8)
NEAR_DIRECT_DB = (-3.0, 15.0)  # direct sound over reverberation, for a user at the computer
FAR_DIRECT_DB = (-14.0, -2.0)  # for others in the room or behind a door
EARLY_S = (0.002, 0.04)  # when early reflections come
LATE_FROM_S = 0.012
DECAY_60_DB = 6.91  # ln(10^3)


def impulse_response(
    rng: np.random.Generator,
    *,
    rt60_s: tuple[float, float] = RT60_S,
    direct_db: tuple[float, float] = NEAR_DIRECT_DB,
) -> Sound:
    """A random room's response, of energy 1; the direct sound is its first sample, so nothing is delayed.

    Direct sound, 4 to 12 early reflections and decaying noise whose treble dies sooner, which is the usual
    statistical picture of a room (Polack's model).
    """
    rt60 = rng.uniform(*rt60_s)
    num = int(rt60 * RATE)
    t = np.arange(num, dtype=np.float32) / RATE
    treble = rng.standard_normal(num, np.float32) * np.exp(
        -t * np.float32(DECAY_60_DB / (rt60 * rng.uniform(0.3, 0.8)))
    )
    bass = np.convolve(rng.standard_normal(num, np.float32), np.full(8, 0.35, np.float32), "same")
    tail = treble + bass * np.exp(-t * np.float32(DECAY_60_DB / rt60))
    tail[: int(LATE_FROM_S * RATE)] *= np.float32(0.1)
    for at_s in rng.uniform(*EARLY_S, rng.integers(4, 13)):
        tail[min(int(at_s * RATE), num - 1)] += np.float32(rng.normal(0, 8) * (1 - at_s / EARLY_S[1] / 1.5))
    tail[0] = 0
    tail *= np.float32(1 / max(np.sqrt(np.dot(tail, tail)), 1e-9))
    share = 1 / (1 + 10 ** (rng.uniform(*direct_db) / 10))  # of the energy, in the tail
    tail *= np.float32(np.sqrt(share))
    tail[0] = np.sqrt(1 - share)
    return tail


def microphone(rng: np.random.Generator, num_bins: int) -> Sound:
    """A random microphone's gain [num_bins] from 0 to 8 kHz: band limits, tilt and unevenness."""
    low = rng.uniform(20, 80) if rng.random() < 0.4 else rng.uniform(80, 300)
    high = rng.uniform(7000, 9000) if rng.random() < 0.6 else rng.uniform(3400, 7000)
    tilt = (np.maximum(POINTS_HZ, 60) / 1000) ** rng.normal(0, 0.25)  # 0.25: 1.5 dB an octave
    return curve(band(low, high, rng.uniform(1, 6)) * tilt * bumps(rng, rng.uniform(0, 3)), num_bins)


def captured(rng: np.random.Generator, sources: list[tuple[Sound, Sound | None]]) -> Sound:
    """The sum [N] of sounds [N], each in its room (an impulse response, or None), through one microphone."""
    num = len(sources[0][0])
    size = fft_size(num + max([len(room) for _, room in sources if room is not None], default=0))
    dry = sum((pcm for pcm, room in sources if room is None), np.zeros(num, np.float32))
    spectrum = spectrum_of(dry, size)
    for pcm, room in sources:
        if room is not None:
            spectrum += spectrum_of(pcm, size) * spectrum_of(room, size)
    spectrum *= microphone(rng, len(spectrum))
    return np.fft.irfft(spectrum, size)[:num].astype(np.float32, copy=False)


def worn(rng: np.random.Generator, pcm: Sound, *, faults: float = 1.0) -> Sound:
    """What cheap hardware and bad links do at times: overdrive, coarse steps, offset, dropouts; in [-1, 1].

    `faults` scales how often.
    """
    drive, steps, offset, dropouts = rng.random(4) >= np.array([0.08, 0.06, 0.05, 0.05]) * faults
    if not drive:
        knee = np.float32(max(rms(pcm), 1e-3) * rng.uniform(2, 6))
        pcm = np.tanh(pcm / knee) * knee
    if not offset:
        pcm = pcm + np.float32(rng.normal(0, 0.02))
    pcm = np.clip(pcm, -1, 1)
    if not steps:
        pcm = _coarse(rng, pcm)
    if not dropouts:
        pcm = pcm.copy()
        for _ in range(rng.integers(1, 4)):
            start = rng.integers(len(pcm))
            pcm[start : start + int(rng.uniform(0.02, 0.1) * RATE)] = 0
    return pcm


def _coarse(rng: np.random.Generator, pcm: Sound) -> Sound:
    """8 bits by the mu-law of telephones (ITU-T G.711's curve), or 9 to 11 plain bits."""
    if rng.random() < 0.5:
        mu = 255
        level = np.round(np.sign(pcm) * np.log1p(mu * np.abs(pcm)) / np.log1p(mu) * 127) / 127
        coarse: Sound = np.sign(level) * np.expm1(np.abs(level) * np.log1p(mu)) / mu
        return coarse.astype(np.float32, copy=False)
    scale = np.float32(2 ** rng.integers(8, 11))
    return (np.round(pcm * scale) / scale).astype(np.float32, copy=False)


def far_room(rng: np.random.Generator) -> Sound:
    """A room's response to a voice that is not the user's: others, a television, the loudspeaker's echo."""
    return impulse_response(rng, rt60_s=(0.25, 0.9), direct_db=FAR_DIRECT_DB)


def faint_noise(rng: np.random.Generator, num: int) -> Sound:
    """What is left in a quiet place: digital silence, or the microphone's own hiss at -95 to -70 dBFS."""
    if rng.random() < 0.5:
        return np.zeros(num, np.float32)
    return rng.standard_normal(num, np.float32) * np.float32(decibels(rng.uniform(-95, -70)))

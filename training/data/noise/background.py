"""What sounds around a user at a computer: steady noises, machines, things that knock; all synthesised."""

from collections.abc import Callable

import numpy as np

from training.data.noise.music import music
from training.data.noise.synth import (
    POINTS_HZ,
    RATE,
    Sound,
    add_at,
    at_loudness,
    band,
    bumps,
    decibels,
    noise_of,
    play,
    swell,
    wavetable,
)


def coloured(rng: np.random.Generator, num: int) -> Sound:
    """White to brown noise, roughly coloured."""
    slope = rng.choice([0.0, 1.0, 2.0, rng.uniform(0, 2.5)])
    tilt = np.maximum(POINTS_HZ, 40.0) ** (-slope / 2)
    return noise_of(rng, tilt * bumps(rng, rng.uniform(0, 4)), num)


def hum(rng: np.random.Generator, num: int) -> Sound:
    """Mains of 50 or 60 Hz with harmonics."""
    hz = rng.choice([50.0, 60.0]) + rng.normal(0, 0.05)
    amplitudes = rng.exponential(1, 24) * np.arange(1, 25) ** -rng.uniform(0.5, 2)
    cycles = np.arange(num, dtype=np.float64) * (hz / RATE)
    return play(wavetable(amplitudes, rng), cycles)


def fan(rng: np.random.Generator, num: int) -> Sound:
    """Air through a fan: a band of noise, and its blades as a faint tone."""
    low = rng.uniform(40, 300)
    air = noise_of(rng, band(low, low * rng.uniform(3, 30), rng.uniform(1, 3)) * bumps(rng, 3), num)
    blades = wavetable(rng.exponential(1, 6) / np.arange(1, 7), rng)
    cycles = np.arange(num, dtype=np.float64) * (rng.uniform(40, 400) / RATE)
    return air + play(blades, cycles) * np.float32(decibels(rng.uniform(-40, -6)))


def traffic(rng: np.random.Generator, num: int) -> Sound:
    """The rumble of a street, which comes and goes."""
    rumble = noise_of(rng, band(25, rng.uniform(120, 600), rng.uniform(0.6, 1.5)), num)
    return rumble * swell(rng, num, 5, rng.uniform(0.7, 3))


def murmur(rng: np.random.Generator, num: int) -> Sound:
    """Noise with the spectrum and the rhythm of speech, but no words."""
    voice = noise_of(rng, band(150, rng.uniform(500, 1500), 1) * bumps(rng, 6), num)
    return voice * swell(rng, num, rng.uniform(4, 10), rng.uniform(0.06, 0.2))


def keyboard(rng: np.random.Generator, num: int) -> Sound:
    """Typing: a few different clicks in bursts."""
    keys = []
    for _ in range(4):
        click = _struck(rng, rng.uniform(0.002, 0.012), rng.uniform(800, 4000))
        add_at(
            click,
            int(rng.uniform(0.02, 0.06) * RATE),
            click[: RATE // 50] * np.float32(rng.uniform(0.1, 0.6)),
        )
        keys.append(click)
    track = np.zeros(num, np.float32)
    at, rate = rng.uniform(0, 1), rng.uniform(3, 10)
    while at * RATE < num:
        add_at(track, int(at * RATE), keys[rng.integers(4)] * np.float32(rng.uniform(0.4, 1)))
        at += rng.uniform(0.6, 1.4) / rate + (rng.uniform(0.3, 2) if rng.random() < 0.1 else 0)
    return track


def knocks(rng: np.random.Generator, num: int) -> Sound:
    """Doors, thumps on the table, things put down: struck bodies, once or in quick rows."""
    track = np.zeros(num, np.float32)
    at = rng.uniform(0, 1.5)
    while at * RATE < num:
        hit = _struck(
            rng, rng.uniform(0.01, 0.12), rng.choice([90.0, 200.0, 600.0, 2000.0]) * rng.uniform(0.7, 1.4)
        )
        for index in range(rng.choice([1, 1, 2, 3, 4])):
            later = at + index * rng.uniform(0.12, 0.3)
            add_at(track, int(later * RATE), hit * np.float32(rng.uniform(0.5, 1)))
        at += rng.uniform(0.8, 4)
    return track


def coughs(rng: np.random.Generator, num: int) -> Sound:
    """Bursts of breath like coughs, sneezes and sniffs."""
    track = np.zeros(num, np.float32)
    at = rng.uniform(0, 2)
    throat = band(rng.uniform(200, 600), rng.uniform(1500, 5000), 1) * bumps(rng, 5)
    while at * RATE < num:
        for _ in range(rng.integers(1, 4)):
            length = int(rng.uniform(0.08, 0.4) * RATE)
            fall = np.exp(-np.linspace(0, rng.uniform(3, 7), length, dtype=np.float32))
            rise = np.minimum(np.linspace(0, rng.uniform(5, 30), length, dtype=np.float32), 1)
            add_at(track, int(at * RATE), noise_of(rng, throat, length) * fall * rise)
            at += length / RATE + rng.uniform(0, 0.25)
        at += rng.uniform(1, 5)
    return track


def beeps(rng: np.random.Generator, num: int) -> Sound:
    """Telephones, alarms, squeaks and birds: tones that repeat, steady or gliding."""
    length = int(rng.uniform(0.05, 0.6) * RATE)
    from_hz = rng.uniform(300, 3500)
    to_hz = from_hz * rng.choice([1.0, 1.0, rng.uniform(0.5, 2)])
    glide = np.cumsum(np.linspace(from_hz, to_hz, length)) / RATE
    table = wavetable(
        rng.exponential(1, 4) * 0.4 ** np.arange(4) * (np.arange(1, 5) * max(from_hz, to_hz) < RATE / 2), rng
    )
    beep = play(table, glide) * np.hanning(length).astype(np.float32) ** np.float32(rng.uniform(0.1, 1))
    track = np.zeros(num, np.float32)
    at, every = rng.uniform(0, 1), length / RATE * rng.uniform(1.1, 3)
    while at * RATE < num:
        for _ in range(rng.integers(1, 6)):
            add_at(track, int(at * RATE), beep)
            at += every
        at += rng.uniform(0.2, 3)
    return track


def _struck(rng: np.random.Generator, decay_s: float, centre_hz: float) -> Sound:
    """A body that is hit: ringing noise around `centre_hz` that dies with time constant `decay_s`."""
    length = int(decay_s * 7 * RATE)
    wide = rng.uniform(1.3, 4)
    ringing = noise_of(rng, band(centre_hz / wide, centre_hz * wide, 1.5), length)
    ringing *= np.exp(-np.arange(length, dtype=np.float32) / np.float32(decay_s * RATE))
    return ringing


STEADY: tuple[Callable[[np.random.Generator, int], Sound], ...] = (coloured, coloured, hum, fan, traffic)
LIVELY: tuple[Callable[[np.random.Generator, int], Sound], ...] = (
    *(murmur, keyboard, knocks, coughs, beeps),
    *(music, music, music),
)


def background(rng: np.random.Generator, num: int) -> Sound:
    """A random mixture [num] of what sounds in homes and offices, of loudness 1.

    One steady noise, one lively one, or both with up to 20 dB between them.
    """
    pick = rng.random()
    track = np.zeros(num, np.float32)
    if pick < 0.7:
        track += at_loudness(STEADY[rng.integers(len(STEADY))](rng, num), 1)
    if pick > 0.45:
        lively = LIVELY[rng.integers(len(LIVELY))](rng, num)
        track += at_loudness(lively, decibels(rng.uniform(-10, 20)))
    return at_loudness(track, 1)

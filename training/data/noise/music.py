"""Music from nothing: random scales, tempi, instruments and drums, too varied to be learned by heart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.data.noise.synth import (
    RATE,
    Sound,
    add_at,
    at_loudness,
    band,
    decibels,
    noise_of,
    play,
    wavetable,
)

SCALES = (
    (0, 2, 4, 5, 7, 9, 11),  # major
    (0, 2, 3, 5, 7, 8, 10),  # minor
    (0, 2, 3, 5, 7, 9, 10),  # dorian
    (0, 2, 4, 7, 9),  # pentatonic
    (0, 3, 5, 6, 7, 10),  # blues
    (0, 2, 4, 6, 8, 10),  # whole tones
)
MAX_HARMONICS = 40
CHORDS = ((0, 2, 4), (0, 2, 4, 6), (0, 4), (0, 3, 4))  # steps of the scale
RHYTHMS = ((1, 1, 1, 1), (2, 1, 1), (0.5, 0.5, 1), (1.5, 0.5), (3, 1), (1, 0.5, 0.5, 2), (4,))  # in beats


@dataclass(frozen=True, kw_only=True, slots=True)
class Instrument:
    """How notes sound: harmonics fall with `slope` or peak at `formants_hz`; then envelope and vibrato."""

    slope: float
    odd_only: bool
    formants_hz: NDArray[np.float64] | None
    attack_s: float
    decay_s: float  # time constant; long ones are held like an organ's
    vibrato_hz: float
    vibrato: float  # share of the frequency
    partials: tuple[float, ...]  # (1.0,), or the inharmonic ones of a bell


def instrument(rng: np.random.Generator) -> Instrument:
    """Draw one: strings, flutes, organs, plucked things, bells, choirs and what lies between."""
    kind = rng.random()
    plucked = rng.random() < 0.5
    return Instrument(
        slope=rng.uniform(0.7, 3),
        odd_only=rng.random() < 0.25,
        formants_hz=rng.uniform((300, 900, 2200), (900, 2200, 3200)) if kind > 0.75 else None,
        attack_s=rng.uniform(0.002, 0.02) if plucked else rng.uniform(0.02, 0.15),
        decay_s=rng.uniform(0.1, 0.8) if plucked else rng.uniform(1, 6),
        vibrato_hz=rng.uniform(4, 7),
        vibrato=rng.choice([0.0, rng.uniform(0.002, 0.02)]),
        partials=(1.0, rng.uniform(2, 3), rng.uniform(4, 6)) if kind < 0.15 else (1.0,),
    )


def note(rng: np.random.Generator, how: Instrument, hz: float, num: int) -> Sound:
    """One note [num] of RMS about 1 before its envelope, which ends in 10 ms of release."""
    order = np.arange(1, max(2, min(MAX_HARMONICS, int(RATE / 2 / hz))), dtype=np.float64)
    amplitudes = order**-how.slope
    if how.odd_only:
        amplitudes[1::2] *= 0.05
    if how.formants_hz is not None:
        far = np.abs(order[:, None] * hz - how.formants_hz) / (0.12 * how.formants_hz)
        amplitudes = order**-0.5 * (0.02 + np.exp(-0.5 * far**2).sum(1))
    t = np.arange(num, dtype=np.float32) * np.float32(1 / RATE)
    cycles = t * np.float32(hz)
    if how.vibrato:
        depth = hz * how.vibrato / (2 * np.pi * how.vibrato_hz)
        cycles = cycles + np.float32(depth) * (1 - np.cos(np.float32(2 * np.pi * how.vibrato_hz) * t))
    envelope = np.minimum(t / np.float32(how.attack_s), 1) * np.exp(-t / np.float32(how.decay_s))
    release = min(num, RATE // 100)
    envelope[num - release :] *= np.linspace(1, 0, release, dtype=np.float32)
    table = wavetable(amplitudes, rng)
    sound = play(table, cycles)
    for ratio in how.partials[1:]:
        sound = sound + play(table, cycles * np.float32(ratio)) * np.float32(0.4)
    sound *= envelope
    return sound


def music(rng: np.random.Generator, num: int) -> Sound:
    """A passage [num] of loudness 1: one to four of melody, chords, arpeggio, bass and drums."""
    beat_s = 60 / rng.uniform(55, 170)
    scale = np.array(SCALES[rng.integers(len(SCALES))])
    key_hz = 110 * 2 ** rng.uniform(-0.5, 0.5)
    bars = int(num / RATE / beat_s / 4) + 2
    harmony = rng.integers(0, len(scale), bars)
    offset_s = rng.uniform(0, 4 * beat_s)  # the scene begins anywhere in a bar
    track = np.zeros(num + int(4 * beat_s * RATE) + 1, np.float32)
    layers = rng.permutation(5)[: rng.integers(1, 5)]
    for layer in layers:
        gain = decibels(rng.uniform(-9, 0))
        if layer == 4:
            _drums(rng, track, beat_s, gain)
            continue
        how = instrument(rng)
        for start_s, length_s, step in _score(rng, int(layer), harmony, beat_s):
            hz = key_hz * 2.0 ** ((scale[step % len(scale)] + 12 * (step // len(scale))) / 12)
            length = int(min(length_s, 3 * how.decay_s) * RATE)
            if length > RATE // 50 and start_s * RATE < len(track):
                add_at(track, int(start_s * RATE), note(rng, how, hz, length) * np.float32(gain))
    first = int(offset_s * RATE)
    return at_loudness(track[first : first + num], 1)


def _score(
    rng: np.random.Generator, layer: int, harmony: NDArray[np.int64], beat_s: float
) -> list[tuple[float, float, int]]:
    """(start in s, length in s, step of the scale from the key) of every note of a layer."""
    notes: list[tuple[float, float, int]] = []
    size = int(harmony.max()) + 1
    chord = CHORDS[rng.integers(len(CHORDS))]
    melody = int(rng.integers(7, 14))
    grain = beat_s / rng.choice([1, 2, 3, 4])
    for bar, root in enumerate(harmony):
        start = bar * 4 * beat_s
        if layer == 0:  # chords
            notes += [(start, 4 * beat_s, int(root) + 7 + step) for step in chord]
        elif layer == 1:  # arpeggio
            times = range(int(4 * beat_s / grain))
            notes += [(start + i * grain, grain, int(root) + 7 + chord[i % len(chord)]) for i in times]
        elif layer == 2:  # melody, a walk on the scale
            for beats in RHYTHMS[rng.integers(len(RHYTHMS))]:
                melody = int(np.clip(melody + rng.integers(-2, 3), 4, 16 + size))
                if rng.random() < 0.85:
                    notes.append((start, beats * beat_s * rng.uniform(0.6, 1), melody))
                start += beats * beat_s
        else:  # bass
            notes += [(start + i * 2 * beat_s, 2 * beat_s, int(root)) for i in range(2)]
    return notes


def _drums(rng: np.random.Generator, track: Sound, beat_s: float, gain: float) -> None:
    """Kick, snare and hat, in a pattern of sixteen steps that repeats."""
    t = np.arange(int(0.25 * RATE), dtype=np.float32) / RATE
    sweep = rng.uniform(45, 70) * t + rng.uniform(1, 4) * (1 - np.exp(-t / np.float32(0.03)))
    kick = np.sin(2 * np.pi * sweep) * np.exp(-t / np.float32(rng.uniform(0.05, 0.15))) * 2
    snare = noise_of(rng, band(rng.uniform(150, 500), 6000, 1), len(t)) * np.exp(
        -t / np.float32(rng.uniform(0.03, 0.1))
    )
    hat = noise_of(rng, band(5000, 8000, 3), len(t)) * np.exp(-t / np.float32(rng.uniform(0.01, 0.06)))
    chances = ((0.8, 0.1, 0.3, 0.1), (0.05, 0.1, 0.1, 0.1), (0.8, 0.4, 0.8, 0.4))
    for sound, odds, backbeat in zip((kick, snare, hat), chances, (False, True, False), strict=True):
        pattern = rng.random(16) < np.tile(odds, 4)
        if backbeat:
            pattern[[4, 12]] = True
        loud = sound.astype(np.float32) * np.float32(gain)
        for step in range(int(len(track) / RATE / beat_s * 4)):
            if pattern[step % 16]:
                add_at(track, int(step * beat_s / 4 * RATE), loud)

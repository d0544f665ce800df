"""Noise and music: all of it sounds, none of it is the same twice, spectra are what they say."""

from collections.abc import Callable

import numpy as np
import pytest

from training.data.noise.background import LIVELY, STEADY, background, hum
from training.data.noise.music import music
from training.data.noise.synth import (
    POINTS_HZ,
    RATE,
    Sound,
    add_at,
    at_loudness,
    band,
    fft_size,
    loudness,
    noise_of,
    play,
    rms,
    spectrum_of,
    wavetable,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("make", list(dict.fromkeys([*STEADY, *LIVELY, background])))
def test_every_noise_sounds_and_follows_its_seed(make: Callable[[np.random.Generator, int], Sound]) -> None:
    num = 4 * RATE + 17
    for seed in range(3):
        one, again, other = (make(rng(s), num) for s in (seed, seed, seed + 100))
        assert one.shape == (num,)
        assert one.dtype == np.float32
        assert np.isfinite(one).all()
        assert loudness(one) > 1e-3
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)


def test_backgrounds_have_loudness_one() -> None:
    for seed in range(5):
        assert loudness(background(rng(seed), 3 * RATE)) == pytest.approx(1, rel=1e-3)


def test_hum_is_mains_and_its_harmonics() -> None:
    power = np.abs(np.fft.rfft(hum(rng(), 4 * RATE))) ** 2  # a quarter of a Hz a bin
    near = sum(power[4 * hz * k - 8 : 4 * hz * k + 9].sum() for hz in (50, 60) for k in range(1, 25))
    assert near > 0.95 * power.sum()


def test_music_has_pitches_and_differs() -> None:
    spectra = []
    for seed in range(4):
        spectrum = np.abs(np.fft.rfft(music(rng(seed), 4 * RATE)))[: 4 * 4000]
        assert spectrum.max() > 10 * spectrum.mean()
        spectra.append(spectrum / np.linalg.norm(spectrum))
    likeness = np.array(spectra) @ np.array(spectra).T
    assert likeness[np.triu_indices(4, 1)].max() < 0.7


def test_shaped_noise_is_in_its_band() -> None:
    pcm = noise_of(rng(), band(1000, 2000, 4), RATE)
    power = np.abs(np.fft.rfft(pcm)) ** 2
    assert rms(pcm) == pytest.approx(1, rel=1e-4)
    assert power[800:2500].sum() > 0.9 * power.sum()
    assert len(POINTS_HZ) == len(band(1000, 2000, 4))


def test_a_wavetable_plays_its_harmonics() -> None:
    table = wavetable(np.array([1.0, 0, 0.5]), rng())
    power = np.abs(np.fft.rfft(play(table, np.arange(RATE) * (200 / RATE)))) ** 2
    assert power[600] / power[200] == pytest.approx(0.25, rel=0.02)
    assert power[200] + power[600] > 0.99 * power.sum()


def test_the_tools_do_what_they_say() -> None:
    assert all(n <= fft_size(n) <= 1.15 * n + 1 for n in (1, 100, 5000, 140_800))
    track = np.zeros(5, np.float32)
    add_at(track, 3, np.ones(4, np.float32))
    add_at(track, 9, np.ones(4, np.float32))
    assert track.tolist() == [0, 0, 0, 1, 1]
    assert not at_loudness(track * 0, 1).any()
    pcm = rng().standard_normal(1000).astype(np.float32)
    assert np.allclose(np.fft.irfft(spectrum_of(pcm, 1024), 1024)[:1000], pcm, atol=1e-4)

"""Rooms keep energy and time; microphones and faults keep sound within bounds."""

import numpy as np
import pytest

from training.data.noise.acoustics import captured, far_room, impulse_response, microphone, worn
from training.data.noise.synth import RATE, rms


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_room_has_energy_one_and_its_direct_sound_first(seed: int) -> None:
    near = impulse_response(rng(seed))
    assert near.dtype == np.float32
    assert np.dot(near, near) == pytest.approx(1, abs=1e-4)
    assert 0.1 * RATE <= len(near) + 1 <= 0.8 * RATE + 1
    direct_db = 10 * np.log10(near[0] ** 2 / (1 - near[0] ** 2))
    assert -3 <= direct_db <= 15
    far = far_room(rng(seed))
    assert 10 * np.log10(far[0] ** 2 / (1 - far[0] ** 2)) <= -2


def test_reverberation_decays_by_60_db_in_the_time_it_is_given() -> None:
    response = impulse_response(rng(1), rt60_s=(0.6, 0.6))
    left = np.cumsum(response[::-1] ** 2)[::-1]  # Schroeder's backward integration
    t = np.arange(len(left)) / RATE
    steep = (t > 0.06) & (t < 0.35)
    slope = np.polyfit(t[steep], 10 * np.log10(left[steep]), 1)[0]
    assert slope == pytest.approx(-60 / 0.6, rel=0.25)


def test_a_voice_in_a_room_is_not_delayed_and_keeps_its_level() -> None:
    draws = rng(2)
    burst = np.zeros(RATE, np.float32)
    burst[RATE // 2 : RATE // 2 + 800] = draws.standard_normal(800)
    heard = captured(draws, [(burst, impulse_response(draws)), (np.zeros_like(burst), None)])
    assert len(heard) == len(burst)
    before, after = rms(heard[: RATE // 2 - 40]), rms(heard[RATE // 2 :])
    assert before < 0.05 * after
    assert 0.1 < rms(heard) / rms(burst) < 3


def test_a_microphone_passes_speech_and_stops_what_is_very_low() -> None:
    for seed in range(10):
        gain = microphone(rng(seed), 8001)  # one bin a Hz
        assert gain[0] < 0.01
        assert gain[500:2000].mean() > 0.3


def test_faults_keep_sound_within_bounds_and_leave_the_input_alone() -> None:
    pcm = (rng(3).standard_normal(RATE) * 0.5).astype(np.float32)
    kept = pcm.copy()
    kinds = set()
    for seed in range(30):
        heard = worn(rng(seed), pcm, faults=20)  # all of them, always
        assert np.abs(heard).max() <= 1
        assert heard.dtype == np.float32
        kinds.add(len(np.unique(heard)) < 5000)
    assert np.array_equal(pcm, kept)
    assert True in kinds
    assert np.array_equal(worn(rng(1), pcm, faults=0), np.clip(pcm, -1, 1))

import numpy as np
import pytest

from training.data.voices.sound import RATE, finish


def tone(seconds: float, rate: int, hz: float = 300.0) -> np.ndarray:
    return np.sin(np.arange(int(seconds * rate)) / rate * hz * 2 * np.pi).astype(np.float32)


def test_silence_around_speech_is_cut_and_times_follow():
    sound = np.concatenate([np.zeros(1600), tone(0.5, RATE), np.zeros(3200)]).astype(np.float32)
    pcm, phones = finish(sound, RATE, [("pau", 0.1), ("aa", 0.35), ("n", 0.55), ("pau", 0.8)])
    assert len(pcm) == 8000
    assert np.sqrt(np.mean(pcm**2)) == pytest.approx(0.1, rel=1e-3)
    assert [name for name, _ in phones] == ["aa", "n"]
    assert [end for _, end in phones] == pytest.approx([0.25, 0.5])  # what rings belongs to the last phone


def test_a_warped_voice_is_higher_and_shorter():
    pcm, phones = finish(tone(1.0, 22_050), 22_050, [("aa", 0.5), ("n", 1.0)], warp=1.25)
    assert len(pcm) == pytest.approx(RATE * 0.8, abs=80)
    assert phones[0][1] == pytest.approx(0.4, abs=0.01)
    loudest = np.argmax(np.abs(np.fft.rfft(pcm))) * RATE / len(pcm)
    assert loudest == pytest.approx(375, abs=2)


def test_silence_stays_silence():
    pcm, phones = finish(np.zeros(800, np.float32), RATE, None)
    assert len(pcm) == 800
    assert phones is None
    assert not pcm.any()

"""Sample clips: files that other programs open."""

import wave
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from training.data.samples import TAIL_FRAMES, write_samples
from training.data.voices.agent import AgentUtterance
from training.data.voices.sound import write_wav


def test_a_wav_holds_the_sound_and_clips_what_is_too_loud(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.array([0.0, 0.5, -0.5, 2.0, -2.0], np.float32))
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        pcm = np.frombuffer(file.readframes(5), "<i2")
    assert pcm.tolist() == [0, 16383, -16383, 32767, -32767]


def test_a_sample_is_a_wav_a_sheet_and_a_clip_of_one_length(tmp_path: Path) -> None:
    spoken = AgentUtterance(
        sentence="Ah.", pcm=np.zeros(8000, np.float32), phones=[("aa", 0.4), ("pau", 0.5)]
    )
    sound, sheet, clip = write_samples([spoken], tmp_path / "new", size=64)
    with wave.open(str(sound)) as file:
        assert file.getnframes() == 8000
    picture = cv2.imread(str(sheet))
    assert picture is not None
    assert picture.shape == (64, 640, 3)
    with av.open(str(clip)) as opened:
        frames = sum(1 for _ in opened.decode(video=0))
    assert frames == pytest.approx(12 + TAIL_FRAMES, abs=1)

"""The trained agent through the real pair: what is typed is said, by a face, and silence is silent."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from training.evaluation.recogniser import recognise, word_errors
from training.evaluation.signals import read_sound

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SENTENCE = "The weather is lovely today"
SECONDS = 8
RATE = 16_000
QUIET_DBFS = -50.0
SKIN_RGB = (243, 201, 165)
CHEEKS = (slice(64, 76), slice(36, 92))  # rows and columns of a 128x128 picture
MOUTH = (slice(72, 92), slice(50, 78))


def pictures_of(path: Path) -> npt.NDArray[np.float32]:
    """All pictures, RGB [frames, 128, 128, 3]."""
    with av.open(path) as file:
        return np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)]).astype(np.float32)


def level_dbfs(pcm: npt.NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(pcm**2)) + 1e-9))


@pytest.fixture(scope="module")
def session(
    groups: Callable[[], AbstractContextManager[Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A recording of one session in which one sentence is typed at the start, and its report."""
    folder = tmp_path_factory.mktemp("pocket")
    video, report = folder / "out.mp4", folder / "r.json"
    with groups() as group:
        live = group.start(
            "live", "--port", "0", "--text", SENTENCE, "--seconds", str(SECONDS),
            "--record", str(video), "--report", str(report),
        )  # fmt: skip
        assert live.wait() == 0, live.output
    return video, json.loads(report.read_text())


def test_what_is_typed_is_said(session: tuple[Path, dict[str, Any]]) -> None:
    video, report = session
    assert report["text"] == SENTENCE
    heard = recognise(read_sound(video))
    wrong, _ = word_errors(heard, SENTENCE)
    assert wrong <= 1, heard


def test_silence_is_silent(session: tuple[Path, dict[str, Any]]) -> None:
    # The sentence takes about two seconds from the start; a loaded machine may put gaps into it, not sound.
    assert level_dbfs(read_sound(session[0])[-2 * RATE :]) < QUIET_DBFS


def test_the_face_is_there_and_its_lips_move_with_the_sound(session: tuple[Path, dict[str, Any]]) -> None:
    sound, pictures = read_sound(session[0]), pictures_of(session[0])
    assert np.abs(pictures[:, *CHEEKS].mean((0, 1, 2)) - SKIN_RGB).max() < 35
    mouth = np.abs(np.diff(pictures[:, *MOUTH], axis=0)).mean((1, 2, 3))
    frames = min(len(mouth), len(sound) // 640)
    loud = np.array([level_dbfs(sound[640 * i : 640 * (i + 1)]) > -40 for i in range(frames)])
    assert loud.sum() > 15
    assert mouth[:frames][loud].mean() > 3 * mouth[:frames][-50:].mean()

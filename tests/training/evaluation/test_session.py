"""A recording whose first and last minute differ by what is known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.data.faces.face import Pose, draw
from training.data.samples import write_mp4
from training.errors import TrainingError
from training.evaluation.session import DriftReport, compare

SECONDS = 150
REPORT: dict[str, Any] = {
    "text": "one two three",
    "av_skew_ms": {"p50": 0.0, "max": 20.0},
    "client": {"gaps": 1, "underruns": 2},
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> DriftReport:
    """Speech of a second every two, 6 dB quieter at last; a face that breathes, pales and stops for 4 s."""
    folder = tmp_path_factory.mktemp("recording")
    breaths = [
        draw(Pose(breath=float(x)), 64) for x in np.sin(np.linspace(0, 2 * np.pi, 100, endpoint=False))
    ]
    frames = [breaths[index % 100] for index in range(25 * SECONDS)]
    frames[1500:1600] = [frames[1500]] * 100
    frames[-25 * 60 :] = [(frame // 2 + 100).astype(np.uint8) for frame in frames[-25 * 60 :]]
    second = np.concatenate([np.sin(np.arange(16_000) * 0.2), np.zeros(16_000)]).astype(np.float32)
    sound = np.tile(0.2 * second, SECONDS // 2)
    sound[-16_000 * 60 :] /= 2
    write_mp4(folder / "r.mp4", frames, sound)
    (folder / "r.json").write_text(json.dumps(REPORT))
    return compare(folder / "r.mp4", folder / "r.json")


def test_what_changed_is_found(compared: DriftReport) -> None:
    rows = {row.what: row for row in compared.rows}
    assert rows["level of speech"].last - rows["level of speech"].first == pytest.approx(-6, abs=0.3)
    assert rows["share of speaking"].first == pytest.approx(50, abs=2)
    assert rows["level of silence"].first < -60
    assert abs(rows["wall, red"].first - 38) < 8
    assert rows["wall, red"].last - rows["wall, red"].first > 60


def test_what_holds_for_the_whole(compared: DriftReport) -> None:
    whole = compared.whole
    assert 3.8 < whole["longest frozen stretch (s)"] < 5.0
    assert whole["longest stretch of sound (s)"] == pytest.approx(1, abs=0.1)
    assert whole["A/V skew max (ms)"] == 20
    assert whole["units that never came"] == 1
    assert whole["sound for each word said (s)"] == pytest.approx(SECONDS / 2 / 3, abs=1)
    assert json.dumps(compared.content())


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"--recording .*nowhere"):
        compare(tmp_path / "nowhere.mp4", None)
    write_mp4(tmp_path / "short.mp4", [draw(Pose(), 64)] * 25, np.zeros(16_000, np.float32))
    with pytest.raises(TrainingError, match="two minutes are needed, it has 1 s"):
        compare(tmp_path / "short.mp4", None)

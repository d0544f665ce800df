"""The judge itself: that it finds what it looks for in material where the answer is known."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from scripts.main import main
from scripts.train import MEASURES
from shared.models.pocket.phones import PHONE_IDS, SILENCE
from training.data.face import Pose, draw
from training.judge import (
    Sentence,
    Turn,
    decibels,
    drawn_openings,
    lip_sync,
    opening,
    silence_levels,
    word_error_rates,
)

WORDS = ["pau", "hh", "ax", "l", "ow", "ow", "ow", "pau", "w", "er", "er", "l", "d", "aa", "aa", "pau"] * 3
SILENT_UNITS = 6
SLOTS = [PHONE_IDS[name] for name in WORDS] + [SILENCE] * 4 * SILENT_UNITS


def turn_with(openings: NDArray[np.float64]) -> Turn:
    """Three times "hello world", then silence, with lips of one's own."""
    units = len(SLOTS) // 4
    return Turn(
        pcm=np.zeros((units, 2560), np.float32),
        openings=openings.reshape(units, 4),
        phones=tuple(tuple(SLOTS[4 * unit : 4 * unit + 4]) for unit in range(units)),
    )


def test_the_dark_of_the_mouth_grows_with_its_opening_wherever_the_head_is() -> None:
    for head in (-1.0, 0.0, 1.0):
        pose = Pose(head_x=head, head_y=-head)
        seen = [opening(draw(dataclasses.replace(pose, open=x))) for x in (0.0, 0.3, 0.6, 1.0)]
        assert seen == sorted(seen)
        assert seen[0] < 0.1
        assert seen[-1] > 3 * seen[0] + 0.1


@pytest.mark.parametrize("lag", [-2, 0, 3])
def test_lips_that_are_late_are_found_late(lag: int) -> None:
    drawn = drawn_openings(SLOTS, 128)
    found = lip_sync([turn_with(np.roll(drawn, lag))] * 2, 128)
    assert found["lip_best_lag_frames"] == lag
    assert found["lip_correlation_best"] > 0.9
    assert (found["lip_correlation"] == found["lip_correlation_best"]) == (lag == 0)


def test_a_face_that_does_not_move_has_no_lips() -> None:
    assert lip_sync([turn_with(np.zeros(len(SLOTS)))], 128)["lip_correlation_best"] == 0.0


def test_levels() -> None:
    assert decibels(np.full(2560, 0.1, np.float32)) == pytest.approx(-20.0, abs=0.01)
    assert decibels(np.zeros(2560, np.float32)) == -100.0
    idle = turn_with(np.zeros(len(SLOTS)))
    after = turn_with(np.zeros(len(SLOTS)))
    after.pcm[: after.spoken_units] = 0.5  # speech itself is not counted
    after.pcm[-1] = 0.01
    levels = silence_levels(idle, [after])
    assert levels["silence_before_dbfs"] == -100.0
    assert levels["silence_loudest_unit_dbfs"] == pytest.approx(-40.0, abs=0.01)
    assert -46 < levels["silence_after_dbfs"] < -40


def test_rates_count_words_not_sentences() -> None:
    short = Sentence(said="Hello.", heard="", words=1, errors=1, errors_original=0, errors_codec=0)
    long = Sentence(said="", heard="", words=9, errors=0, errors_original=1, errors_codec=2)
    rates = word_error_rates([short, long])
    assert rates["wer_agent"] == pytest.approx(10)
    assert rates["wer_original"] == pytest.approx(10)
    assert rates["wer_codec"] == pytest.approx(20)
    assert rates["wer_over_original"] == pytest.approx(0)
    assert rates["wer_agent_first_half"] == pytest.approx(100)


def test_a_model_is_judged_as_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "verdict.json"
    assert main(["train", "judge", "--config", "tiny", "-n", "2", "--json", str(out)]) == 0
    verdict = json.loads(out.read_text())
    assert verdict["measures"].keys() == MEASURES.keys()
    assert len(verdict["sentences"]) == 2
    assert verdict["measures"]["wer_agent"] > 50  # its weights are random
    assert "2 unseen sentences" in capsys.readouterr().out

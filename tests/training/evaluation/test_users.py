"""Users who say given things at known times."""

from pathlib import Path

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Request
from training.data.voices.bank import UtteranceBank
from training.data.voices.speakers import installed
from training.evaluation.users import (
    ASKED,
    UNIT_SAMPLES,
    Speakers,
    asking,
    in_turn,
    share_of,
    staged,
)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> UtteranceBank:
    folder = tmp_path_factory.mktemp("bank")
    return Speakers.speak(Path(folder), "espeak", requests=len(ASKED), others=10).bank()


def test_unseen_voices_ask_everything(bank: UtteranceBank) -> None:
    unseen = {f"espeak/{voice.name}" for voice in installed(held_out=True)["espeak"]}
    assert set(bank.voices) <= unseen
    assert sorted(bank.requests[asking(bank)].tolist()) == sorted(map(int, ASKED))
    assert bank.utterance(asking(bank, Request.STORY)[0]).request is Request.STORY


def test_what_is_said_is_where_the_scene_says(bank: UtteranceBank) -> None:
    spoken = [bank.utterance(index) for index in asking(bank)[:3]]
    scenes = []
    for _ in range(2):
        rng = np.random.default_rng(4)
        said = in_turn(spoken, rng, first_s=(0.5, 1.0), pause_s=(0.8, 2.0))
        scenes.append(staged(rng, said, tail_s=1.0))
    first, again = scenes
    assert np.array_equal(first.pcm, again.pcm)
    assert len(first.pcm) % UNIT_SAMPLES == 0
    assert [event.request for event in first.events] == [one.request for one in spoken]
    assert 0.5 <= first.events[0].start_s < 1.0
    pauses = [b.start_s - a.end_s for a, b in zip(first.events, first.events[1:], strict=False)]
    assert all(0.79 < pause < 2.01 for pause in pauses)
    assert len(first.pcm) / 16_000 - first.events[-1].end_s >= 0.99


def test_shares_do_not_depend_on_who_is_missing() -> None:
    everybody = ("espeak", "flite", "festival", "kokoro")
    counts = [share_of(family, 500, everybody, least=20) for family in everybody]
    assert all(count % 20 == 0 and count > 0 for count in counts)
    assert 400 <= sum(counts) <= 600

"""A user on film: says what it should, when it says."""

import itertools

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Request
from training.data.film import LEAD_S, dialogue
from training.data.hearing.targets import FRAME
from training.data.noise.synth import RATE, Sound, rms
from training.errors import TrainingError

ASKED = [Request.NAME, Request.HELLO, Request.NONE, Request.COUNT_FIVE]


class Tone:
    """An utterance by hand."""

    phones = None

    def __init__(self, request: Request) -> None:
        self.request = request
        self.pcm: Sound = (np.sin(np.arange(RATE) * 0.3) * 0.1).astype(np.float32)


class Bank:
    """Two voices, one of which can say all of it."""

    def __init__(self) -> None:
        self.said = [Tone(request) for request in (*ASKED, Request.HELLO)]
        self.requests = np.array([int(one.request) for one in self.said])
        self.voices = np.array(["able"] * len(ASKED) + ["other"])

    def __len__(self) -> int:
        return len(self.said)

    def utterance(self, index: int) -> Tone:
        return self.said[index]


def test_a_dialogue_asks_what_it_should_when_it_says() -> None:
    first, again = (
        dialogue(Bank(), np.random.default_rng(1), ASKED, gaps_s=(2, 1, 1.5, 3)) for _ in range(2)
    )
    assert np.array_equal(first.pcm, again.pcm)
    assert [event.request for event in first.events] == ASKED
    assert first.events[0].start_s == LEAD_S
    gaps = [b.start_s - a.end_s for a, b in itertools.pairwise(first.events)]
    assert gaps == pytest.approx([2, 1, 1.5], abs=1e-3)
    assert len(first.pcm) % FRAME == 0
    assert len(first.pcm) / RATE - first.events[-1].end_s == pytest.approx(3, abs=0.04)
    assert rms(first.pcm[: round(0.9 * RATE)]) > 0


def test_a_dialogue_nobody_can_speak_is_refused() -> None:
    with pytest.raises(TrainingError, match="ALPHABET"):
        dialogue(Bank(), np.random.default_rng(1), [Request.ALPHABET], gaps_s=[1])

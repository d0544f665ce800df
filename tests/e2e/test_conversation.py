"""A user whom the agent never heard in training asks three things through the real pair, and is answered."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared.models.pocket.dialogue.replies import FIXED, Request
from training.data.hearing.scenes import scene_of, voiced
from training.data.hearing.targets import FRAME, Placed
from training.data.noise.acoustics import faint_noise
from training.data.noise.synth import RATE
from training.data.voices.sound import write_wav
from training.data.voices.speakers import installed, say
from training.evaluation.recogniser import recognise, word_errors
from training.evaluation.signals import read_sound

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTIONS = {
    Request.NAME: "what is your name",
    Request.COUNT_FIVE: "can you count to five",
    Request.WHERE: "where do you live",
}
USERS = [("flite", "rms"), ("espeak", "en-us+m7")]
FIRST_S, ANSWER_S = 1.0, 4.5
LEVEL_DB = -23.0
ANSWER_WITHIN_S = 0.64
WINDOW_S, LOUD_DBFS = 0.01, -45.0


@dataclass(frozen=True)
class Conversation:
    """A recording of the agent on the user's timeline, the session's report, and when each question ended."""

    sound: npt.NDArray[np.float32]
    report: dict[str, Any]
    ends_s: list[float]

    def answer(self, index: int) -> npt.NDArray[np.float32]:
        """What is heard from the end of a question on."""
        start = round(self.ends_s[index] * RATE)
        return self.sound[start : start + round(ANSWER_S * RATE)]


def write_user(path: Path, family: str, name: str) -> list[float]:
    """The questions in one voice, with time for the answers; returns when each ends, in seconds."""
    rng = np.random.default_rng(1)
    (voice,) = (voice for voice in installed(held_out=True)[family] if voice.name == name)
    said: list[Placed] = []
    at = round(FIRST_S * RATE)
    for request, text in QUESTIONS.items():
        said.append(Placed(spoken=say(voice, text, rng, request=request), start=at))
        at = said[-1].end + round(ANSWER_S * RATE)
    num = -(-at // FRAME) * FRAME
    scene = scene_of(voiced(said, rng, num, LEVEL_DB) + faint_noise(rng, num), said)
    write_wav(path, scene.pcm)
    return [event.end_s for event in scene.events]


def first_sound_s(pcm: npt.NDArray[np.float32]) -> float:
    """When something is heard first; infinite if nothing is."""
    window = round(WINDOW_S * RATE)
    power = (pcm[: len(pcm) // window * window].reshape(-1, window) ** 2).mean(1)
    loud = np.flatnonzero(10 * np.log10(power + 1e-9) > LOUD_DBFS)
    return float(loud[0]) * WINDOW_S if len(loud) else float("inf")


@pytest.fixture(scope="module", params=USERS, ids="/".join)
def conversation(
    request: pytest.FixtureRequest,
    groups: Callable[[], AbstractContextManager[Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Conversation:
    folder = tmp_path_factory.mktemp("conversation")
    user, video, report = folder / "user.wav", folder / "out.mp4", folder / "r.json"
    ends_s = write_user(user, *request.param)
    with groups() as group:
        live = group.start(
            "live", "--port", "0", "--input", str(user), "--record", str(video), "--report", str(report)
        )
        assert live.wait() == 0, live.output
    return Conversation(read_sound(video), json.loads(report.read_text()), ends_s)


def test_every_question_is_understood_once_and_in_turn(conversation: Conversation) -> None:
    heard = [each["request"] for each in conversation.report["heard"]]
    assert heard == [request.name.lower() for request in QUESTIONS]
    assert conversation.report["client"]["understood"] == conversation.report["heard"]


def test_the_answers_are_the_right_ones(conversation: Conversation) -> None:
    assert conversation.report["text"] == " ".join(FIXED[request] for request in QUESTIONS)
    answers = [recognise(conversation.answer(index)) for index in range(len(QUESTIONS))]
    counts = [word_errors(h, FIXED[r]) for h, r in zip(answers, QUESTIONS, strict=True)]
    # Short words run together for the recogniser: "I live" is "alive" to it.
    assert sum(wrong for wrong, _ in counts) <= 0.25 * sum(words for _, words in counts), answers


def test_every_answer_begins_soon_after_the_question_and_never_before_it(conversation: Conversation) -> None:
    first_question = conversation.sound[: round(conversation.ends_s[0] * RATE)]
    assert first_sound_s(first_question) == float("inf")
    delays = [first_sound_s(conversation.answer(index)) for index in range(len(QUESTIONS))]
    assert all(0 < delay <= ANSWER_WITHIN_S for delay in delays), delays

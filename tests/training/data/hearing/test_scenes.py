"""Scenes: targets exactly where they must be, the same by seed, levels as drawn."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.speech.phones import PHONE_IDS
from training.data.hearing.scenes import (
    LOUDER_DB,
    SHORT_PAUSE_S,
    VOICE_DB,
    Odds,
    compose,
    compose_batch,
    script,
    voiced,
)
from training.data.hearing.targets import (
    ANSWER_FROM_S,
    ANSWER_UNTIL_S,
    DONT_CARE,
    FRAME,
    RUN_ON_S,
    UNSURE_BEFORE_S,
    Placed,
    sounding,
    targets,
)
from training.data.noise.synth import RATE, Sound, rms
from training.data.voices.agent import speak
from training.errors import TrainingError

SENTENCES = {
    "hello": Request.HELLO,
    "what is your name": Request.NAME,
    "count to five": Request.COUNT_FIVE,
    "the weather is lovely today": Request.NONE,
    "count to three": Request.NONE,
}


@dataclass(frozen=True)
class Said:
    """An utterance by hand."""

    pcm: Sound
    request: Request = Request.NONE
    phones: list[tuple[str, float]] | None = None


class SmallBank:
    """A few sentences by two of flite's voices; one of them tells no phones."""

    def __init__(self) -> None:
        self.said = []
        for voice, (text, request) in itertools.product(("kal", "awb"), SENTENCES.items()):
            spoken = speak(text, voice)
            self.said.append(Said(spoken.pcm, request, spoken.phones if voice == "kal" else None))
        self.requests: NDArray[np.int64] = np.array([int(s.request) for s in self.said])
        self.voices: NDArray[np.str_] = np.repeat(np.array(["kal", "awb"]), len(SENTENCES))

    def __len__(self) -> int:
        return len(self.said)

    def utterance(self, index: int) -> Said:
        return self.said[index]


@pytest.fixture(scope="module")
def bank() -> SmallBank:
    return SmallBank()


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def tone(seconds: float, request: Request = Request.NONE) -> Said:
    return Said(np.sin(np.arange(round(seconds * RATE)) * 0.3).astype(np.float32) * 0.1, request)


def at(start_s: float, spoken: Said) -> Placed:
    return Placed(spoken=spoken, start=round(start_s * RATE))


def ends_s(request: NDArray[np.int64], value: int) -> list[float]:
    """When the frames that hold `value` end."""
    return [round((int(i) + 1) * FRAME / RATE, 2) for i in np.flatnonzero(request == value)]


def seconds_of(first_s: float, last_s: float) -> list[float]:
    return [round(float(t), 2) for t in np.arange(first_s, last_s + 0.001, FRAME / RATE)]


def test_a_request_is_due_from_80_to_600_ms_after_its_end_and_unsure_around_it() -> None:
    assert (UNSURE_BEFORE_S, ANSWER_FROM_S, ANSWER_UNTIL_S) == (0.10, 0.08, 0.60)
    wanted = targets([at(0.5, tone(1.5, Request.NAME))], 4 * RATE)  # ends at 2.0
    assert ends_s(wanted.request, Request.NAME) == seconds_of(2.08, 2.60)
    assert ends_s(wanted.request, DONT_CARE) == seconds_of(1.92, 2.04)
    assert set(wanted.request.tolist()) == {0, DONT_CARE, Request.NAME}
    assert [(e.request, e.start_s, e.end_s) for e in wanted.events] == [(Request.NAME, 0.5, 2.0)]


def test_the_next_utterance_ends_the_time_to_answer() -> None:
    said = [at(0.2, tone(0.8, Request.HELLO)), at(1.4, tone(1.0, Request.NAME))]
    wanted = targets(said, 4 * RATE)
    assert ends_s(wanted.request, Request.HELLO) == seconds_of(1.08, 1.48)
    assert ends_s(wanted.request, Request.NAME) == seconds_of(2.48, 3.0)


def test_a_request_that_runs_on_is_not_finished() -> None:
    said = [at(0.2, tone(0.8, Request.HELLO)), at(1.0 + RUN_ON_S - 0.05, tone(1.0))]
    wanted = targets(said, 4 * RATE)
    assert wanted.request.max() == 0
    assert [e.request for e in wanted.events] == [Request.NONE, Request.NONE]


def test_a_request_that_the_end_cuts_off_is_nothing() -> None:
    wanted = targets([at(1.5, tone(1.0, Request.HELLO))], 2 * RATE)
    assert not wanted.request.any()
    assert wanted.voice[-1] == 1
    assert [(e.request, e.end_s) for e in wanted.events] == [(Request.NONE, 2.0)]


def test_the_voice_is_the_share_of_the_frame_and_leaves_long_pauses_out() -> None:
    spoken = tone(0.5)
    wanted = targets([at(0.41, spoken)], RATE + FRAME)
    assert wanted.voice[9:12] == pytest.approx([0, 0.75, 1])
    assert wanted.voice[21:24] == pytest.approx([1, 0.75, 0])
    paused = np.concatenate([spoken.pcm, np.zeros(RATE // 2, np.float32), spoken.pcm])
    short = np.concatenate([spoken.pcm, np.zeros(RATE // 10, np.float32), spoken.pcm])
    assert sounding(paused).mean() == pytest.approx(2 / 3, abs=0.02)
    assert sounding(short).all()


def test_each_frame_has_the_phone_that_fills_most_of_it() -> None:
    spoken = replace(tone(0.2), phones=[("hh", 0.03), ("aa", 0.11), ("pau", 0.2)])
    wanted = targets([at(0.4, spoken), at(1.0, tone(0.2))], 2 * RATE)
    hh, aa, pau = (PHONE_IDS[name] for name in ("hh", "aa", "pau"))
    assert wanted.phones[9:16].tolist() == [pau, hh, aa, aa, pau, pau, pau]
    assert (wanted.phones[25:30] == DONT_CARE).all()
    assert (wanted.phones != DONT_CARE).sum() == len(wanted.phones) - 5


def test_scenes_are_sound_with_targets_for_every_frame(bank: SmallBank) -> None:
    draws = rng()
    scenes = [compose(bank, draws, seconds=6, echoes=[bank.said[3].pcm]) for _ in range(30)]
    for scene in scenes:
        assert scene.pcm.shape == (6 * RATE,)
        assert scene.pcm.dtype == scene.voice.dtype == np.float32
        assert scene.request.shape == scene.phones.shape == scene.voice.shape == (150,)
        assert scene.request.dtype == scene.phones.dtype == np.int64
        assert np.isfinite(scene.pcm).all()
        assert np.abs(scene.pcm).max() <= 1
        for event in scene.events:
            spoke = scene.voice[round(event.start_s * 25) + 1 : round(event.end_s * 25) - 1]
            assert spoke.mean() > 0.5
    assert len({e.request for s in scenes for e in s.events}) == 4
    assert any(not s.events for s in scenes)


def test_the_same_seed_gives_the_same_scene(bank: SmallBank) -> None:
    one, again, other = (compose_batch(bank, rng(seed), 3, 4.0) for seed in (5, 5, 6))
    assert one.pcm.shape == (3, 4 * RATE)
    assert one.request.shape == (3, 100)
    assert np.array_equal(one.pcm, again.pcm)
    assert np.array_equal(one.request, again.request)
    assert not np.array_equal(one.pcm, other.pcm)


def test_a_script_leaves_room_for_answers_and_speaks_with_one_voice(bank: SmallBank) -> None:
    odds = Odds(cut_off=0, run_on=0, short_pause=1, other_speaker=0)
    num = 8 * RATE
    for seed in range(20):
        said = script(bank, rng(seed), num, odds)
        assert all(p.end <= num - ANSWER_UNTIL_S * RATE for p in said)
        assert len({p.spoken.phones is None for p in said}) <= 1
        for one, following in itertools.pairwise(said):
            assert SHORT_PAUSE_S[0] - 1e-3 <= (following.start - one.end) / RATE <= SHORT_PAUSE_S[1]


def test_utterances_have_the_level_that_was_drawn(bank: SmallBank) -> None:
    for level_db in VOICE_DB:
        placed = at(0.5, bank.said[1])
        track = voiced([placed], rng(), 3 * RATE, level_db)
        found_db = 20 * np.log10(rms(track[placed.start : placed.end]))
        assert abs(found_db - level_db) <= LOUDER_DB + 0.01
        assert not track[: placed.start].any()


def test_noise_is_below_the_voice_and_echo_is_not_heard_as_voice(bank: SmallBank) -> None:
    alone = Odds(no_user=1, others=0, echo=1, quiet=1, room=0, faults=0)
    scene = compose(bank, rng(3), odds=alone, echoes=[bank.said[3].pcm])
    assert not scene.voice.any()
    assert not scene.request.any()
    assert 0 < rms(scene.pcm) < 0.02


def test_a_bank_without_other_sentences_is_refused(bank: SmallBank) -> None:
    class Asking(SmallBank):
        def __init__(self) -> None:
            self.said, self.voices = bank.said, bank.voices
            self.requests = np.ones_like(bank.requests)

    with pytest.raises(TrainingError, match="no sentences that ask for nothing"):
        script(Asking(), rng(), 60 * RATE, Odds(request=0.5))

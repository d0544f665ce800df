"""What the model is judged by is never what it was trained on, but where the row says so."""

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Colour, Request
from training.context import HELD_OUT_SEED
from training.data.split import Split, judging_rng
from training.data.vision.look import somebody
from training.data.vision.room import HELD_OUT_ROOMS, ROOMS
from training.data.vision.scene import still
from training.data.vision.thing import PAINTS, thing
from training.data.voices.plan import nothing_asked, plan
from training.data.voices.requests import (
    ENDINGS,
    NEAR_MISSES,
    OPENINGS,
    UNSEEN_NEAR_MISSES,
    UNSEEN_WORDINGS,
    WORDINGS,
    begins_or_ends_as_request,
    plain,
    wording,
)
from training.data.voices.sentences import corpus, prose, split_of
from training.data.voices.speakers import AGENT, VOICES, Voice
from training.evaluation.measures import COLOURS, MEASURES
from training.evaluation.measures import WORDINGS as SAYS_WORDINGS
from training.evaluation.speaking import judged_sentences

BY_NAME = {measure.name: measure for measure in MEASURES}


def words(texts: object) -> set[str]:
    return {" ".join(plain(str(text))) for text in texts}  # type: ignore[attr-defined]


TRAINED_WORDINGS = words(text for texts in WORDINGS.values() for text in texts)
UNSEEN = words(text for texts in UNSEEN_WORDINGS.values() for text in texts)


def test_sentences() -> None:
    judged = words(judged_sentences(85))
    assert len(judged) > 60
    trained = words(corpus(4400, 1, Split.TRAIN)) | words(s for s in prose() if split_of(s) is Split.TRAIN)
    assert not judged & trained
    assert not judged & words(corpus(100, HELD_OUT_SEED, Split.WATCH))
    assert not judged & (TRAINED_WORDINGS | words(NEAR_MISSES))


def test_sentences_that_ask_for_nothing() -> None:
    trained = words(text for text, _ in nothing_asked(4000, np.random.default_rng(1), Split.TRAIN))
    judged = words(text for text, _ in nothing_asked(400, np.random.default_rng(2), Split.JUDGE))
    assert not trained & judged


def test_near_misses() -> None:
    assert len(words(UNSEEN_NEAR_MISSES)) == len(UNSEEN_NEAR_MISSES) >= 100
    assert not words(UNSEEN_NEAR_MISSES) & (words(NEAR_MISSES) | TRAINED_WORDINGS | UNSEEN)
    assert not [text for text in UNSEEN_NEAR_MISSES if begins_or_ends_as_request(text)]
    rng = np.random.default_rng(0)
    assert words(t for t, near in nothing_asked(900, rng, Split.JUDGE) if near) <= words(UNSEEN_NEAR_MISSES)
    for split in (Split.TRAIN, Split.WATCH):
        assert words(t for t, near in nothing_asked(900, rng, split) if near) <= words(NEAR_MISSES)


def core(text: str) -> str:
    """What is asked, without the name and the politeness around it."""
    pieces = text.split(", ")
    while len(pieces) > 1 and pieces[0] in OPENINGS:
        pieces.pop(0)
    while len(pieces) > 1 and pieces[-1] in ENDINGS:
        pieces.pop()
    return " ".join(plain(" ".join(pieces)))


def test_wordings() -> None:
    assert set(UNSEEN_WORDINGS) == set(WORDINGS)
    assert all(len(texts) >= 3 for texts in UNSEEN_WORDINGS.values())
    assert not UNSEEN & (TRAINED_WORDINGS | words(NEAR_MISSES))
    # Nor is one hidden in the other: no unseen wording begins or ends with one that is trained.
    for text in UNSEEN:
        pieces = text.split()
        parts = {" ".join(pieces[:n]) for n in range(1, len(pieces) + 1)}
        parts |= {" ".join(pieces[-n:]) for n in range(1, len(pieces) + 1)}
        assert not parts & TRAINED_WORDINGS, text
    rng = np.random.default_rng(0)
    asked = [request for request in Request if request]
    assert {core(wording(r, rng, unseen=True)) for r in asked for _ in range(40)} <= UNSEEN
    assert {core(wording(r, rng)) for r in asked for _ in range(40)} <= TRAINED_WORDINGS


def test_rows_whose_wordings_were_trained_say_so() -> None:
    asking = [name for name in BY_NAME if name.startswith(("requests", "answer", "vision_answers"))]
    assert len(asking) >= 11
    for name in asking:
        assert (SAYS_WORDINGS in BY_NAME[name].in_training) == (name != "requests_right_unseen"), name


def test_speakers() -> None:
    trained = {voice.speaker for voice in VOICES if not voice.held_out} | {AGENT}
    judged = {voice.speaker for voice in VOICES if voice.held_out}
    assert not trained & judged
    assert "slt" not in judged
    assert all(AGENT not in voice.name for voice in VOICES)
    for voice in VOICES:  # nor is one of a pair such as edward and edward2 on the other side
        if voice.family == "espeak" and voice.held_out:
            assert voice.speaker.rstrip("0123456789") in {"f", "m"} or voice.speaker not in trained


@pytest.mark.parametrize(
    ("family", "name", "speaker"),
    [
        ("espeak", "en+edward2", "edward"), ("espeak", "en-us+f5", "f5"), ("flite", "kal16", "kal"),
        ("festival", "ked_diphone", "ked"), ("kokoro", "af_sarah", "af_sarah"),
    ],
)  # fmt: skip
def test_who_a_voice_is(family: str, name: str, speaker: str) -> None:
    assert Voice(family=family, name=name, held_out=False).speaker == speaker


def test_banks_are_spoken_by_their_own_speakers() -> None:
    speakers = {
        split: {job.voice.speaker for job in plan(200, 100, 1, ("espeak", "flite"), split)} for split in Split
    }
    assert not speakers[Split.TRAIN] & (speakers[Split.WATCH] | speakers[Split.JUDGE])


def test_kinds_of_rooms_people_and_things() -> None:
    rng = np.random.default_rng(3)
    assert not set(ROOMS) & set(HELD_OUT_ROOMS)
    assert not any(somebody(rng, held_out=False).held_out for _ in range(500))
    assert all(somebody(rng, held_out=True).held_out for _ in range(500))
    kinds = {held_out: {thing(rng, Colour.RED, held_out=held_out).kind for _ in range(200)}
             for held_out in (False, True)}  # fmt: skip
    assert not kinds[False] & kinds[True]


def test_rooms_of_judged_scenes_are_of_held_out_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: np.random.Generator) -> None:
        pytest.fail("a trained room")

    monkeypatch.setattr("training.data.vision.room.ROOMS", (fail,))
    for seed in range(20):
        still(judging_rng(seed), 1, place=(0, 0), colour=Colour.RED, held_out=True)


def test_rows_about_colours_say_that_these_were_trained() -> None:
    assert set(PAINTS) == {colour for colour in Colour if colour}  # trained and judged: there are no others
    for name in ("scenes", "colour_right", "vision_right", "vision_answers_right"):
        assert COLOURS in BY_NAME[name].in_training


def test_seeds() -> None:
    def state(rng: np.random.Generator) -> object:
        return rng.bit_generator.state["state"]["state"]  # type: ignore[call-overload, index]

    trained = {state(np.random.default_rng((0, step))) for step in range(6000)}
    trained |= {state(np.random.default_rng(seed)) for seed in range(300)}
    judged = [state(judging_rng(seed, number)) for seed in range(0, 2000, 10) for number in range(10)]
    judged += [state(judging_rng(seed)) for seed in range(1000)]
    assert not trained & set(judged)

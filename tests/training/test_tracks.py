"""From the phones of a recording to slots, and from recordings to a timeline of sound, slots and lips."""

import numpy as np
import pytest

from shared.models.pocket.speech.phones import PHONE_IDS, SILENCE
from training.data.voices.agent import AgentUtterance
from training.data.voices.phones import frames_of_each, slots_of
from training.tracks import FRAME_SAMPLES, lay_out

PHONES = [("pau", 0.10), ("hh", 0.17), ("ax", 0.20), ("l", 0.22), ("ow", 0.60), ("pau", 0.70)]


def utterance(samples: int = 11_500) -> AgentUtterance:
    return AgentUtterance(sentence="Hello.", pcm=np.full(samples, 0.5, np.float32), phones=PHONES)


def test_each_phone_gets_the_frames_that_it_sounds_in() -> None:
    assert frames_of_each([("aa", 0.2), ("b", 0.4), ("pau", 1.0)]) == [5, 5, 15]


def test_no_phone_is_skipped_and_lag_is_made_up_for() -> None:
    counts = frames_of_each(PHONES)
    assert min(count for (name, _), count in zip(PHONES, counts, strict=True) if name != "pau") >= 1
    assert sum(counts) == round(0.70 / 0.04)


def test_a_pause_too_short_for_a_frame_is_dropped() -> None:
    assert frames_of_each([("aa", 0.08), ("pau", 0.09), ("b", 0.16)]) == [2, 0, 2]


@pytest.mark.parametrize("frames", [10, 17, 30])
def test_slots_fill_the_frames_and_end_in_silence(frames: int) -> None:
    slots = slots_of(PHONES, frames)
    assert len(slots) == frames
    spoken = [
        PHONE_IDS[name] for (name, _), n in zip(PHONES, frames_of_each(PHONES), strict=True) for _ in range(n)
    ]
    assert slots == (spoken + [SILENCE] * 30)[:frames]


def test_a_timeline_keeps_sound_slots_and_lips_together() -> None:
    spoken = [utterance(), utterance(9_001), utterance(FRAME_SAMPLES * 20)]
    timeline = lay_out(spoken, np.random.default_rng(4), cut_short=0)
    assert len(timeline.pcm) == len(timeline.slots) * FRAME_SAMPLES
    assert len(timeline.phones) == len(spoken) * (1 + len(PHONES))
    for index, one in enumerate(spoken):
        (pause, start_s), *phones = timeline.phones[index * (1 + len(PHONES)) :][: 1 + len(PHONES)]
        begin, frames = round(start_s * 25), -(-len(one.pcm) // FRAME_SAMPLES)
        assert pause == "pau"
        assert [phone for phone, _ in phones] == [phone for phone, _ in PHONES]
        assert [end_s - start_s for _, end_s in phones] == pytest.approx([end_s for _, end_s in PHONES])
        assert timeline.slots[begin : begin + frames] == slots_of(PHONES, frames)
        assert np.array_equal(timeline.pcm[begin * FRAME_SAMPLES :][: len(one.pcm)], one.pcm)
    assert np.count_nonzero(timeline.pcm) == sum(len(one.pcm) for one in spoken)


def test_the_same_seed_lays_out_the_same_timeline() -> None:
    one, other = (lay_out([utterance()] * 5, np.random.default_rng(9)) for _ in range(2))
    assert np.array_equal(one.pcm, other.pcm)
    assert one.slots == other.slots


@pytest.mark.parametrize("seed", range(20))
def test_a_sentence_cut_short_stops_within_a_frame(seed: int) -> None:
    timeline = lay_out([utterance()], np.random.default_rng(seed), cut_short=1)
    assert len(timeline.pcm) == len(timeline.slots) * FRAME_SAMPLES
    last = len(timeline.slots) - 1  # the frame in which the sound fades
    sound = timeline.pcm.reshape(-1, FRAME_SAMPLES)
    assert timeline.slots[last] == SILENCE
    assert np.all(sound[last - 1] == 0.5)
    assert np.all(np.diff(sound[last]) <= 0)
    assert (sound[last, 0], sound[last, -1]) == (0.5, 0)
    (_, start_s), *phones = timeline.phones
    begin = round(start_s * 25)
    assert timeline.slots[begin:last] == slots_of(PHONES, 18)[: last - begin]
    assert [name for name, _ in phones] == [name for name, _ in PHONES][: len(phones)]
    assert phones[-1][1] == pytest.approx(last * 0.04)


def test_about_as_many_sentences_are_cut_short_as_asked_for() -> None:
    whole = lay_out([utterance()] * 400, np.random.default_rng(0), cut_short=0)
    some = lay_out([utterance()] * 400, np.random.default_rng(0), cut_short=0.25)
    ends = [sum(name == "ow" for name, _ in timeline.phones) for timeline in (whole, some)]
    assert ends[0] == 400
    assert 320 < ends[1] < 400


def test_some_pauses_are_long_enough_to_have_long_been_listening() -> None:
    timeline = lay_out([utterance()] * 400, np.random.default_rng(0), cut_short=0)
    begins = [0.0, *(end_s for _, end_s in timeline.phones)]
    pauses = np.array(
        [end_s - begin_s for (_, end_s), begin_s in zip(timeline.phones, begins, strict=False)]
    )[:: 1 + len(PHONES)]
    assert pauses.max() < 12.5
    assert 0.06 < np.mean(pauses > 6) < 0.15

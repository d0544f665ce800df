import shutil

import numpy as np
import pytest

from shared.models.pocket.replies import Request
from training.data import bank
from training.data.bank import Bank, load_bank, plan, speak_all, together, write
from training.data.requests import WORDINGS, begins_or_ends_as_request, plain
from training.data.voices import Spoken
from training.errors import TrainingError

needs_voices = pytest.mark.skipif(
    shutil.which("flite") is None or shutil.which("espeak-ng") is None,
    reason="flite and espeak-ng are not installed",
)


def spoken(samples: int, **fields: object) -> Spoken:
    base = {"text": "hi", "voice": "a/b", "request": Request.HELLO, "near_miss": False, "phones": None}
    return Spoken(**{**base, "pcm": np.full(samples, 0.25, np.float32), **fields})


def test_what_is_written_is_read(tmp_path):
    timed = spoken(20, phones=[("hh", 0.0005), ("ay", 0.00125)], near_miss=True, request=Request.NONE)
    write(tmp_path / "bank", iter([spoken(10), timed, spoken(5)]))
    read = Bank.read(tmp_path / "bank")
    assert len(read) == 3
    assert read.seconds == pytest.approx(35 / 16_000)
    assert [len(read.utterance(i).pcm) for i in range(3)] == [10, 20, 5]
    middle = read.utterance(1)
    assert middle.pcm == pytest.approx(timed.pcm, abs=1e-4)
    assert middle.near_miss
    assert middle.request is Request.NONE
    assert [name for name, _ in middle.phones] == ["hh", "ay"]
    assert read.utterance(2).phones is None
    assert read.utterance(2).request is Request.HELLO

    twice = together(read, read)
    assert len(twice) == 6
    assert twice.utterance(4).phones == middle.phones
    assert np.array_equal(twice.utterance(5).pcm, read.utterance(2).pcm)


@needs_voices
def test_a_plan_is_fair_and_keeps_voices_apart():
    jobs = plan(400, 200, 1, bank.QUICK, held_out=False)
    counts = np.bincount([job.request for job in jobs])
    assert list(counts) == [200] + [20] * 20
    assert not any(job.voice.held_out for job in jobs)
    assert all(job.voice.held_out for job in plan(60, 0, 1, bank.QUICK, held_out=True))
    assert jobs == plan(400, 200, 1, bank.QUICK, held_out=False)
    assert jobs != plan(400, 200, 2, bank.QUICK, held_out=False)
    assert {job.voice.family for job in jobs} <= set(bank.QUICK)
    wordings = {" ".join(plain(text)) for texts in WORDINGS.values() for text in texts}
    for job in jobs:
        if job.request is Request.NONE:
            assert " ".join(plain(job.text)) not in wordings
            assert job.near_miss or not begins_or_ends_as_request(job.text)
    near = [job.near_miss for job in jobs if job.request is Request.NONE]
    assert 0.15 < np.mean(near) < 0.35


@needs_voices
def test_the_same_seed_gives_the_same_bank(tmp_path):
    first = load_bank(tmp_path, requests=20, others=6, seed=4, held_out=False)
    chunk = plan(20, 6, 4, bank.QUICK, held_out=False)
    assert [job.text for job in chunk] == list(first.texts)
    again = load_bank(tmp_path / "again", requests=20, others=6, seed=4, held_out=False)
    assert np.array_equal(first.pcm, again.pcm)
    assert first.voices.tolist() == again.voices.tolist()


@needs_voices
def test_a_chunk_is_spoken_in_order():
    jobs = plan(4, 0, 4, ("espeak",), held_out=True)
    assert [u.request for u in speak_all((jobs, [1]))] == [job.request for job in jobs]


@needs_voices
def test_no_family_is_a_fault():
    with pytest.raises(TrainingError, match="none of the voices"):
        plan(4, 0, 4, ("nobody",), held_out=True)

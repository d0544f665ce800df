import json
import shutil

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Request
from training.data.split import Split
from training.data.voices import bank
from training.data.voices.bank import UtteranceBank, load_bank, speak_all, together, warped, write
from training.data.voices.plan import plan
from training.data.voices.speakers import UserUtterance

needs_voices = pytest.mark.skipif(
    shutil.which("flite") is None or shutil.which("espeak-ng") is None,
    reason="flite and espeak-ng are not installed",
)


def spoken(samples: int, **fields: object) -> UserUtterance:
    base = {"text": "hi", "voice": "a/b", "request": Request.HELLO, "near_miss": False, "phones": None}
    return UserUtterance(**{**base, "pcm": np.full(samples, 0.25, np.float32), **fields})


def test_what_is_written_is_read(tmp_path):
    timed = spoken(2000, phones=[("hh", 0.05), ("ay", 0.125)], near_miss=True, request=Request.NONE)
    write(tmp_path / "bank", iter([spoken(10), timed, spoken(5)]), {})
    read = UtteranceBank.read(tmp_path / "bank")
    assert len(read) == 3
    assert read.seconds == pytest.approx(2015 / 16_000)
    assert [len(read.utterance(i).pcm) for i in range(3)] == [10, 2000, 5]
    middle = read.utterance(1)
    assert middle.pcm == pytest.approx(timed.pcm, abs=1e-4)
    assert middle.near_miss
    assert middle.request is Request.NONE
    assert [name for name, _ in middle.phones] == ["hh", "ay"]
    assert read.utterance(2).phones is None
    assert read.utterance(2).request is Request.HELLO

    faster = warped(read, np.random.default_rng(0))
    assert faster.voices.tolist() == ["a/b~"] * 3
    assert faster.utterance(1).phones[-1][1] == pytest.approx(len(faster.utterance(1).pcm) / 16_000)

    twice = together(read, read)
    assert len(twice) == 6
    assert twice.utterance(4).phones == middle.phones
    assert np.array_equal(twice.utterance(5).pcm, read.utterance(2).pcm)


@needs_voices
def test_the_same_seed_gives_the_same_bank(tmp_path):
    first = load_bank(tmp_path, requests=20, others=6, seed=4, split=Split.TRAIN)
    chunk = plan(20, 6, 4, bank.QUICK, Split.TRAIN)
    assert [job.text for job in chunk] == list(first.texts)
    again = load_bank(tmp_path / "again", requests=20, others=6, seed=4, split=Split.TRAIN)
    assert np.array_equal(first.pcm, again.pcm)
    assert first.voices.tolist() == again.voices.tolist()


@needs_voices
def test_a_chunk_is_spoken_in_order():
    jobs = plan(4, 0, 4, ("espeak",), Split.JUDGE)
    assert [u.request for u in speak_all((jobs, [1]))] == [job.request for job in jobs]


@needs_voices
def test_a_bank_of_something_else_is_made_anew_and_says_so(tmp_path, capsys):
    def load():
        return load_bank(tmp_path, requests=20, others=2, seed=4, split=Split.TRAIN, families=("espeak",))

    made = load()
    before = made.folder.stat().st_ino
    assert load().folder.stat().st_ino == before
    assert "made anew" not in capsys.readouterr().out
    manifest = made.folder / bank.MADE_OF
    known = json.loads(manifest.read_text())
    assert known.keys() == {"voices", "sentences", "code", "espeak"}
    assert "1." in known["espeak"]
    for name in known:
        manifest.write_text(json.dumps(known | {name: "other"}))
        assert np.array_equal(load().pcm, made.pcm)
        out = capsys.readouterr().out
        assert f"{made.folder}: made anew, since other than before: {name}" in " ".join(out.split())
        assert json.loads(manifest.read_text()) == known
    manifest.unlink()  # a bank from before there were manifests
    load()
    assert "made anew" in capsys.readouterr().out

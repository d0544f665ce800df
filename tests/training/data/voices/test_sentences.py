"""What is trained on is never what is measured with."""

from training.data.split import Split
from training.data.voices.sentences import HELD_OUT_IN, corpus, prose, split_of


def test_splits_have_no_sentence_in_common() -> None:
    found = {
        split: {s.lower() for s in corpus(600 if split is Split.TRAIN else 60, 2, split)} for split in Split
    }
    for split, sentences in found.items():
        assert len(sentences) > 40
        assert {split_of(sentence) for sentence in sentences} == {split}
    assert len(set().union(*found.values())) == sum(map(len, found.values()))


def test_a_corpus_is_the_same_every_time_and_another_for_another_seed() -> None:
    assert corpus(40, 1, Split.TRAIN) == corpus(40, 1, Split.TRAIN)
    assert corpus(40, 1, Split.TRAIN) != corpus(40, 2, Split.TRAIN)


def test_prose_is_plain_sentences() -> None:
    found = prose()
    assert len(found) > 500
    assert all(3 <= len(s.split()) <= 16 and s[0].isupper() and s[-1] in ".?!" for s in found)
    assert 0.3 < HELD_OUT_IN * sum(split_of(s).held_out for s in found) / len(found) < 3

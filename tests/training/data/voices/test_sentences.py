"""What is trained on is never what is measured with."""

from training.data.voices.sentences import HELD_OUT_IN, corpus, is_held_out, prose


def test_trained_and_held_out_sentences_have_nothing_in_common() -> None:
    trained = {s.lower() for s in corpus(600, 1, held_out=False)}
    held_out = {s.lower() for s in corpus(60, 2, held_out=True)}
    assert len(held_out) > 40
    assert not trained & held_out
    assert all(map(is_held_out, held_out))
    assert not any(map(is_held_out, trained))


def test_a_corpus_is_the_same_every_time_and_another_for_another_seed() -> None:
    assert corpus(40, 1, held_out=False) == corpus(40, 1, held_out=False)
    assert corpus(40, 1, held_out=False) != corpus(40, 2, held_out=False)


def test_prose_is_plain_sentences() -> None:
    found = prose()
    assert len(found) > 500
    assert all(3 <= len(s.split()) <= 16 and s[0].isupper() and s[-1] in ".?!" for s in found)
    assert 0.3 < HELD_OUT_IN * sum(map(is_held_out, found)) / len(found) < 3

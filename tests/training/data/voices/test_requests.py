import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Request
from training.data.voices.requests import NEAR_MISSES, WORDINGS, begins_or_ends_as_request, plain, wording


def test_every_request_has_wordings_of_its_own():
    assert set(WORDINGS) == set(Request) - {Request.NONE}
    assert all(8 <= len(texts) <= 20 for texts in WORDINGS.values())
    all_texts = [" ".join(plain(text)) for texts in WORDINGS.values() for text in texts]
    assert len(set(all_texts)) == len(all_texts)


def test_near_misses_are_no_wordings():
    asked = {" ".join(plain(text)) for texts in WORDINGS.values() for text in texts}
    missed = [" ".join(plain(text)) for text in NEAR_MISSES]
    assert len(missed) == len(set(missed)) >= 60
    assert not asked & set(missed)


@pytest.mark.parametrize(
    ("sentence", "unclear"),
    [
        ("Hello, my name is Anna.", True),
        ("Anna, thank you very much!", True),
        ("He said hello to me.", False),
        ("Open the door.", False),
    ],
)
def test_sentences_that_begin_or_end_as_a_request(sentence, unclear):
    assert begins_or_ends_as_request(sentence) == unclear


def test_wordings_are_drawn_with_politeness_around_them():
    rng = np.random.default_rng(3)
    drawn = [wording(Request.TIME, rng) for _ in range(300)]
    assert set(WORDINGS[Request.TIME]) <= set(drawn)
    assert any(text.startswith("so, ") for text in drawn)
    assert any(text.endswith(", please") for text in drawn)
    assert [wording(Request.TIME, np.random.default_rng(5)) for _ in range(9)] == [
        wording(Request.TIME, np.random.default_rng(5)) for _ in range(9)
    ]
    assert not any(wording(Request.HELLO, rng).endswith("please") for _ in range(200))

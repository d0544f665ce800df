import itertools

import pytest

from shared.models.pocket.dialogue.replies import Colour, Request, reply, what_is_seen
from shared.models.pocket.speech.phones import PHONE_IDS
from shared.models.pocket.speech.pointer import SpeechPointer
from shared.models.pocket.speech.spelling import spell

ASKED = [request for request in Request if request]


@pytest.mark.parametrize("request_", ASKED, ids=lambda request: request.name)
def test_every_request_has_an_answer_that_can_be_spoken(request_: Request) -> None:
    for present, colour, last in itertools.product((True, False), Colour, ("", "Good day.")):
        line = reply(request_, last=last, present=present, colour=colour)
        assert SpeechPointer().say(line)
        assert all(phone in PHONE_IDS for word in spell(line) for phone in word.phones)


def test_what_is_seen_tells_everything_apart() -> None:
    lines = {what_is_seen(present=there, colour=c) for there, c in itertools.product((True, False), Colour)}
    assert len(lines) == 2 * len(Colour)


def test_answers_differ() -> None:
    lines = [reply(request, last="", present=True, colour=Colour.RED) for request in ASKED]
    assert len(set(lines)) == len(ASKED)

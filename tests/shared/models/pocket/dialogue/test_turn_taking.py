import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import FIXED, Colour, Request
from shared.models.pocket.dialogue.turn_taking import (
    BARGE_IN_FRAMES,
    COOLDOWN_FRAMES,
    LONG_TURN_FRAMES,
    PAUSE_FRAMES,
    REQUEST_FRAMES,
    SACCADE,
    TurnDecision,
    TurnTaking,
    UserDetections,
)

FRAMES = 4  # a unit
QUIET, VOICE = 0.1, 0.9


def chances(request: Request, sure: float = 0.9) -> tuple[float, ...]:
    rest = (1 - sure) / (len(Request) - 1)
    return tuple(sure if each is request else rest for each in Request)


def detections(
    *,
    asked: Iterable[Request] = FRAMES * (Request.NONE,),
    sure: float = 0.9,
    voice: Iterable[float] = FRAMES * (QUIET,),
    present: float = 0.0,
    place: tuple[float, float] = (0.0, 0.0),
    colour: Colour = Colour.NONE,
) -> UserDetections:
    return UserDetections(
        requests=tuple(chances(request, sure) for request in asked),
        voice=tuple(voice),
        present=present,
        place=place,
        colours=tuple(0.9 if each is colour else 0.1 / (len(Colour) - 1) for each in Colour),
    )


class Talk:
    """A session that takes turns; `speaking` follows its decisions until told otherwise."""

    def __init__(self, seed: int = 0) -> None:
        self.turn_taking = TurnTaking()
        self.seed = seed
        self.unit = 0
        self.speaking = False

    def live(self, user: UserDetections) -> TurnDecision:
        decision = self.turn_taking.respond(user, seed=self.seed, unit=self.unit, speaking=self.speaking)
        self.unit += 1
        self.speaking = bool(decision.line) or (self.speaking and not decision.barge_in)
        return decision

    def voice(self, frames: str) -> list[TurnDecision]:
        """Units in which the user's voice sounds where there is a `v`."""
        assert len(frames) % FRAMES == 0
        marks = [VOICE if mark == "v" else QUIET for mark in frames]
        units = [marks[at : at + FRAMES] for at in range(0, len(marks), FRAMES)]
        return [self.live(detections(voice=unit)) for unit in units]

    def ask(self, request: Request, **about: object) -> TurnDecision:
        """The head is sure of one request for a whole unit."""
        return self.live(detections(asked=FRAMES * (request,), **about))  # type: ignore[arg-type]

    def wait(self, units: int = 2 * COOLDOWN_FRAMES // FRAMES) -> list[TurnDecision]:
        return [self.live(detections()) for _ in range(units)]


@pytest.fixture
def talk() -> Talk:
    return Talk()


def barged_in(decisions: list[TurnDecision]) -> list[bool]:
    return [decision.barge_in for decision in decisions]


def test_a_request_is_answered_once_however_long_it_echoes(talk: Talk) -> None:
    decisions = [talk.ask(Request.NAME) for _ in range(3 * COOLDOWN_FRAMES // FRAMES)]
    assert [decision.line for decision in decisions] == [FIXED[Request.NAME]] + (len(decisions) - 1) * [""]
    assert [bool(decision.heard) for decision in decisions] == [True] + (len(decisions) - 1) * [False]
    talk.wait(1)
    assert talk.ask(Request.NAME).line == FIXED[Request.NAME]


def test_within_the_cooldown_no_other_request_is_heard_and_after_it_every_one(talk: Talk) -> None:
    talk.ask(Request.NAME)
    talk.wait(COOLDOWN_FRAMES // FRAMES - 2)
    assert talk.ask(Request.AGE).heard is Request.NONE
    talk.wait(1)
    assert talk.ask(Request.AGE).heard is Request.AGE


@pytest.mark.parametrize(
    ("asked", "sure", "heard"),
    [
        ("..nn", 0.9, False),
        ("n.n.", 0.9, False),
        (".nnn", 0.9, True),
        ("nnn.", 0.9, True),
        (".nnn", 0.6, False),
        ("nnnn", 0.6, True),
        ("nnaa", 0.9, False),
    ],
)
def test_four_frames_must_be_sure_on_average(talk: Talk, asked: str, sure: float, heard: bool) -> None:
    assert REQUEST_FRAMES == 4
    marks = {".": Request.NONE, "n": Request.NAME, "a": Request.AGE}
    decision = talk.live(detections(asked=[marks[mark] for mark in asked], sure=sure))
    assert decision.heard is (Request.NAME if heard else Request.NONE)


def test_the_frames_may_lie_in_two_units(talk: Talk) -> None:
    none, joke = Request.NONE, Request.JOKE
    assert not talk.live(detections(asked=(none, none, joke, joke))).heard
    assert talk.live(detections(asked=(joke, none, none, none))).line == FIXED[joke]


def test_stop_silences_without_a_word_and_is_answered_when_there_is_nothing_to_stop(talk: Talk) -> None:
    talk.ask(Request.STORY)
    talk.wait()
    decision = talk.ask(Request.STOP)
    assert (decision.barge_in, decision.line, decision.heard) == (True, "", Request.STOP)
    talk.wait()
    assert talk.ask(Request.STOP).line == FIXED[Request.STOP]


def test_stop_says_nothing_either_when_its_voice_has_cut_the_agent_short_already(talk: Talk) -> None:
    talk.ask(Request.STORY)
    talk.wait()
    assert barged_in(talk.voice("vvvvvvvvvv..")) == [True, False, False]
    assert (decision := talk.ask(Request.STOP)).heard is Request.STOP
    assert decision.line == ""
    talk.wait()
    assert talk.ask(Request.STOP).line == FIXED[Request.STOP]


def test_a_question_while_speaking_silences_and_is_answered(talk: Talk) -> None:
    talk.ask(Request.STORY)
    talk.wait()
    decision = talk.ask(Request.AGE)
    assert (decision.barge_in, decision.line) == (True, FIXED[Request.AGE])


@pytest.mark.parametrize(
    ("frames", "when"),
    [
        ("vv..", [True]),
        ("...vv...", [False, True]),
        ("v.......", [False, False]),
        ("v.v.v.v.v.v.", [False, False, False]),
    ],
    ids=["at once", "over the edge of a unit", "a cough", "flicker alone"],
)
def test_new_voice_cuts_the_agent_short(talk: Talk, frames: str, when: list[bool]) -> None:
    assert BARGE_IN_FRAMES == 2
    talk.ask(Request.STORY)
    talk.wait()
    assert barged_in(talk.voice(frames)) == when
    assert talk.speaking != any(when)


def test_voice_cuts_nothing_short_when_the_agent_is_silent(talk: Talk) -> None:
    assert not any(barged_in(talk.voice(20 * "v")))


def test_the_end_of_the_request_itself_does_not_cut_its_answer_short(talk: Talk) -> None:
    talk.voice(8 * "v")
    answered = talk.ask(Request.STORY, voice=FRAMES * (VOICE,))  # the heads may be ahead of the voice
    assert answered.line
    assert barged_in(talk.voice("vvvvv...")) == [False, False]
    assert barged_in(talk.voice("vvvv")) == [True]


def test_a_typed_line_is_said_though_somebody_talks_in_the_room(talk: Talk) -> None:
    talk.voice(8 * "v")
    talk.turn_taking.typed("hello")
    talk.speaking = True
    assert not any(barged_in(talk.voice(10 * "vv.v" + 3 * "v..v")))
    assert not any(barged_in(talk.voice(PAUSE_FRAMES * ".")))
    assert barged_in(talk.voice("vvvv")) == [True]


def test_a_typed_line_is_cut_short_by_who_was_silent_before(talk: Talk) -> None:
    talk.wait()
    talk.turn_taking.typed("hello")
    talk.speaking = True
    assert barged_in(talk.voice("vvvv")) == [True]


def nods(decisions: list[TurnDecision]) -> list[float]:
    return [frame[2] for decision in decisions for frame in decision.gesture]


def test_a_long_turn_is_nodded_at_in_its_pause(talk: Talk) -> None:
    assert not any(nods(talk.voice(LONG_TURN_FRAMES * "v")))
    made = nods(talk.voice("............"))
    assert max(made) == 1.0
    assert made[-1] == 0.0
    assert not any(nods(talk.wait()))


@pytest.mark.parametrize("frames", [32 * "v" + 8 * ".", 24 * "v" + 8 * "." + 24 * "v" + 8 * "."])
def test_a_short_turn_is_not_nodded_at(talk: Talk, frames: str) -> None:
    assert not any(nods(talk.voice(frames)))


def test_there_is_no_nod_while_the_agent_speaks(talk: Talk) -> None:
    talk.voice(LONG_TURN_FRAMES * "v")
    talk.speaking = True
    assert not any(nods(talk.voice("........")))


def gaze(decision: TurnDecision) -> tuple[float, float]:
    """Where the eyes are at the end of the unit."""
    return decision.gesture[-1][:2]


@pytest.mark.parametrize("place", [(0.5, 0.25), (-0.75, -0.5), (0.25, 0.0)])
def test_the_eyes_follow_the_user_mirrored_from_left_to_right(talk: Talk, place: tuple[float, float]) -> None:
    decision = talk.live(detections(present=1.0, place=place))
    assert gaze(decision) == (-place[0], place[1])
    assert decision.gesture[0][:2] == pytest.approx((-place[0] / 2, place[1] / 2)), "on the way"
    assert gaze(talk.live(detections(present=1.0, place=(0.0, 0.0)))) == (0.0, 0.0)


def test_the_eyes_follow_as_far_as_somebody_is_there(talk: Talk) -> None:
    talk.turn_taking._wandering = (0.0, 0.0)
    decision = talk.live(detections(present=0.5, place=(0.8, 0.4)))  # unit 0 of seed 0 draws no wandering
    assert gaze(decision) == pytest.approx((-0.4, 0.2))


def test_small_movements_are_not_followed(talk: Talk) -> None:
    talk.live(detections(present=1.0, place=(0.5, 0.0)))
    for place in ((0.5 + 0.9 * SACCADE, 0.0), (0.5, -0.9 * SACCADE)):
        assert gaze(talk.live(detections(present=1.0, place=place))) == (-0.5, 0.0)
    moved = (0.5, 1.1 * SACCADE)
    assert gaze(talk.live(detections(present=1.0, place=moved))) == (-moved[0], moved[1])


def test_with_nobody_there_the_eyes_wander_now_and_then(talk: Talk) -> None:
    looks = [gaze(decision) for decision in talk.wait(400)]
    changes = sum(one != two for one, two in itertools.pairwise(looks))
    assert 10 < changes < 100
    assert (0.0, 0.0) in looks
    assert np.abs(looks).max() <= 0.8


def test_repeat_repeats_what_was_said_last(talk: Talk) -> None:
    assert talk.ask(Request.REPEAT).line == "I did not say a word."
    for say, expected in (
        (lambda: talk.ask(Request.AGE), FIXED[Request.AGE]),
        (lambda: talk.turn_taking.typed("Fine weather"), "Fine weather"),
    ):
        talk.wait()
        say()
        talk.wait()
        assert talk.ask(Request.REPEAT).line == expected
        talk.wait()
        assert talk.ask(Request.REPEAT).line == expected


def test_what_is_seen_is_told_and_one_unit_alone_changes_nothing(talk: Talk) -> None:
    for _ in range(4):
        talk.live(detections(present=0.9, colour=Colour.GREEN))
    assert talk.ask(Request.COLOUR, present=0.1).line == "It is green."
    for _ in range(4):
        talk.live(detections(present=0.9, colour=Colour.RED))
    talk.wait(0)
    talk.turn_taking._cooldown = 0
    assert talk.ask(Request.SEE, present=0.9, colour=Colour.RED).line == "I see you, and something red."


def drawn_detections(units: int) -> list[UserDetections]:
    rng = np.random.default_rng(5)
    return [
        detections(
            asked=[Request(int(r)) for r in np.repeat(rng.integers(0, len(Request), 2), 2)],
            voice=rng.random(FRAMES),
            present=float(rng.random()),
            place=(float(rng.uniform(-1, 1)), float(rng.uniform(-1, 1))),
            colour=Colour(int(rng.integers(len(Colour)))),
        )
        for _ in range(units)
    ]


def test_seed_and_detections_decide_everything() -> None:
    users = drawn_detections(60)
    one, again, other = ([talk.live(user) for user in users] for talk in (Talk(3), Talk(3), Talk(4)))
    assert one == again
    assert one != other
    assert [decision.line for decision in one] == [decision.line for decision in other], (
        "the seed moves the gaze alone"
    )

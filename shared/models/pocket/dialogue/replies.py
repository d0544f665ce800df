"""What the pocket agent can be asked, and what it answers: the whole of its conversation, on one page.

The listening tower hears *which* of these was asked (`network.listener`); the words of the answer are spelled
and spoken like typed ones.
"""

import enum


class Request(enum.IntEnum):
    """What the user asked; the value indexes the listener's head. Wordings: `training.data`."""

    NONE = 0
    HELLO = 1
    HOW_ARE_YOU = 2
    NAME = 3
    COUNT_FIVE = 4
    COUNT_TEN = 5
    THANKS = 6
    STOP = 7
    GOODBYE = 8
    SEE = 9
    COLOUR = 10
    JOKE = 11
    SING = 12
    HELP = 13
    REPEAT = 14
    TIME = 15
    AGE = 16
    WHERE = 17
    HEAR = 18
    ALPHABET = 19
    STORY = 20


class Colour(enum.IntEnum):
    """The main colour of what the user holds up."""

    NONE = 0
    RED = 1
    ORANGE = 2
    YELLOW = 3
    GREEN = 4
    BLUE = 5
    PURPLE = 6
    WHITE = 7
    BLACK = 8


FIXED = {
    Request.HELLO: "Hello! It is nice to see you.",
    Request.HOW_ARE_YOU: "I am fine, thank you.",
    Request.NAME: "My name is Robin.",
    Request.COUNT_FIVE: "One, two, three, four, five.",
    Request.COUNT_TEN: "One, two, three, four, five, six, seven, eight, nine, ten.",
    Request.THANKS: "You are welcome.",
    Request.STOP: "All right.",
    Request.GOODBYE: "Goodbye! See you soon.",
    Request.JOKE: "Why did the chicken cross the road? To get to the other side.",
    Request.SING: "La la la. I am no singer, I am sorry.",
    Request.HELP: "Ask me my name, or ask me to count, or to tell a story.",
    Request.TIME: "I have no clock, I am sorry.",
    Request.AGE: "I am very young.",
    Request.WHERE: "I live in this computer.",
    Request.HEAR: "Yes, I can hear you.",
    Request.ALPHABET: "A, B, C, D, E, F, G, and so on.",
    Request.STORY: "A bird lived in a garden by a river. Every morning it sang a song for the people on the "
    "bridge. One day the people sang with it, and they were all happy.",
}


def reply(request: Request, *, last: str, present: bool, colour: Colour) -> str:
    """The answer to a request, given what was said last and what is seen."""
    match request:
        case Request.SEE:
            return what_is_seen(present=present, colour=colour)
        case Request.COLOUR:
            return f"It is {colour.name.lower()}." if colour else "I see nothing in your hand."
        case Request.REPEAT:
            return last or "I did not say a word."
        case _:
            return FIXED[request]


def what_is_seen(*, present: bool, colour: Colour) -> str:
    """One sentence about who and what is in front of the camera."""
    thing = f"something {colour.name.lower()}" if colour else ""
    if present:
        return f"I see you, and {thing}." if thing else "I see you."
    return f"I see {thing}, but nobody." if thing else "I see nobody."

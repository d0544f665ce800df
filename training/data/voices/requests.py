"""What users say: the wordings of every request, and sentences that resemble them but ask for nothing."""

import functools
import re

import numpy as np

from shared.models.pocket.dialogue.replies import Request


def _listed(text: str) -> tuple[str, ...]:
    return tuple(" ".join(text.split()).split(", "))


OPENINGS = _listed("robin, hey robin, okay, hey, so, well, excuse me, and, robin please, um, all right")
ENDINGS = _listed("robin, please, now, then")
OPENED, ENDED = 0.25, 0.12  # shares of the wordings that are said with an opening, with an ending
SHORT = {Request.HELLO, Request.THANKS, Request.GOODBYE}  # nobody says please to these

WORDINGS: dict[Request, tuple[str, ...]] = {
    request: _listed(texts)
    for request, texts in {
        Request.HELLO: """hello, hi, hello robin, hi robin, hi there, hello there, good morning, good
            afternoon, good evening, hey robin, good morning robin, hello hello, nice to meet you, good
            day""",
        Request.HOW_ARE_YOU: """how are you, how are you today, how are you doing, how's it going, how is it
            going, hello how are you, hi how are you, how do you do, how are you feeling, are you well, how
            have you been, hi robin how are you, how are things, how do you feel today""",
        Request.NAME: """what is your name, what's your name, who are you, tell me your name, what are you
            called, what do they call you, may I ask your name, do you have a name, can you tell me your name,
            what was your name again, hello what is your name, hi who are you, say your name""",
        Request.COUNT_FIVE: """count to five, can you count to five, please count to five, could you count to
            five, count up to five, count from one to five, can you count up to five, count to five for me, I
            want you to count to five, let me hear you count to five, would you count to five""",
        Request.COUNT_TEN: """count to ten, can you count to ten, please count to ten, could you count to ten,
            count up to ten, count from one to ten, can you count up to ten, count to ten for me, I want you
            to count to ten, let me hear you count to ten, would you count to ten""",
        Request.THANKS: """thank you, thanks, thank you very much, thanks a lot, thank you robin, thanks
            robin, many thanks, thank you so much, okay thank you, great thanks, that was nice thank you, no
            thank you""",
        Request.STOP: """stop, stop it, please stop, stop talking, be quiet, quiet please, that's enough, stop
            now, stop please, that is enough, hush, okay stop, shut up, robin stop, please be quiet, silence
            please""",
        Request.GOODBYE: """goodbye, bye, bye bye, goodbye robin, bye robin, see you later, see you soon, see
            you tomorrow, good night, okay bye, I have to go now, talk to you later, farewell, see you""",
        Request.SEE: """what do you see, what can you see, can you see me, do you see me, tell me what you
            see, who do you see, who can you see, what are you looking at, am I in the picture, is anybody
            there, can you see anybody, describe what you see, do you see anything""",
        Request.COLOUR: """what colour is this, what color is it, which colour is this, what is this colour,
            what colour is that, what colour am I holding, tell me the colour, name this colour, what colour
            do you see, can you tell me what colour this is, what's the colour of this, which color is it, do
            you know this colour, what colour do I have in my hand""",
        Request.JOKE: """tell me a joke, tell a joke, can you tell me a joke, do you know a joke, make me
            laugh, say something funny, tell me something funny, do you know any jokes, I want to hear a joke,
            a joke please, could you tell me a joke, let's hear a joke, tell me another joke""",
        Request.SING: """sing a song, sing me a song, can you sing, sing something, please sing for me, could
            you sing a song, sing for me, will you sing, can you sing a song for me, let me hear you sing, do
            you sing, I want to hear you sing, do you know a song""",
        Request.HELP: """help, help me, what can you do, can you help me, I need help, what can I say, what
            can I ask you, how does this work, please help me, what do you know, what should I say, what are
            you able to do, tell me what you can do, what can I do here""",
        Request.REPEAT: """say that again, repeat that, repeat that please, can you repeat that, what did you
            say, pardon, sorry what did you say, say it again, once more please, again please, could you say
            that again, I did not understand, I didn't understand that, pardon me, come again, please repeat,
            could you repeat that please""",
        Request.TIME: """what time is it, what's the time, what is the time, tell me the time, do you know
            what time it is, can you tell me the time, what time is it now, do you have the time, how late is
            it, could you tell me what time it is, have you got the time, is it late""",
        Request.AGE: """how old are you, what is your age, what's your age, when were you born, tell me your
            age, are you old, are you young, how many years old are you, when is your birthday, what year were
            you born, may I ask how old you are, can you tell me how old you are""",
        Request.WHERE: """where are you, where do you live, where are you from, where is your home, where do
            you come from, tell me where you are, where are you now, where is your house, what place is this,
            in which town do you live, where were you made, can you tell me where you live""",
        Request.HEAR: """can you hear me, do you hear me, are you listening, are you there, hello can you hear
            me, are you listening to me, can you hear me now, can you hear what I say, do you understand me,
            is the microphone on, can you understand me, testing testing, is this thing on""",
        Request.ALPHABET: """say the alphabet, tell me the alphabet, do you know the alphabet, can you say the
            alphabet, recite the alphabet, say your ABC, what are the letters of the alphabet, spell the
            alphabet, do you know your ABC, can you recite the alphabet, the alphabet please, say the
            letters""",
        Request.STORY: """tell me a story, can you tell me a story, tell a story, I want to hear a story, a
            story please, do you know a story, could you tell me a story, tell me a short story, read me a
            story, please tell me a story, tell us a story, let's hear a story, tell me a bedtime story, do
            you know any stories""",
    }.items()
}

NEAR_MISSES = _listed(
    """count to three, count to twenty, count the apples, I can count on you, count me in, he can count to
    five hundred, ten of them came, there were five of us, four or five people, she counted to ten and went
    away, the name of the game, my name is Peter, her name was on the list, what is the name of your dog, what
    is his name, I forgot the name of the street, what is the matter, what is on the table, what time does the
    train leave, what time do we eat, the last time I was here, it is time to go home, I have no time for
    this, this time it was different, we had a good time, time is money, I told him to stop the car, stop the
    car, the bus stop is over there, it never stops raining, we stopped at the station, do not stop here, the
    top of the hill, a shop in the town, thank goodness it is friday, thank heavens, I must thank my mother,
    he never said thank you to her, she sent a thank you card, I think so, think about it, the tank is full,
    he said hello to me, say hello to your sister, the hills are high, a yellow flower, it was a good morning
    for a walk, good evening dresses are expensive, I said goodbye to my friends, we drove by the lake, buy
    some bread, I will buy it tomorrow, stand by the door, the sea is blue, I see, I see what they mean, can
    you see the ships on the sea, what do you want to see, do you see my brother often, what does she see in
    him, the colour of money, what colour was the house, I painted it in a different colour, my favourite
    colour is blue, he told me a joke yesterday, it was only a joke, that is no joke, she sings in a choir,
    the birds sing in the morning, I cannot sing, the singer was late, a single ticket, this song is too long,
    I helped my father, help yourself to some cake, it does not help, the help desk is closed, can you help my
    sister, say nothing, again and again, never again, he repeated the class, I beg you, the park and the
    garden, how old is the house, the old man and the boat, my car is ten years old, how are your parents, how
    is the weather, how far is it, how much is it, how many are there, where is the station, where are my
    keys, where do they live, where did you put the book, who is at the door, who are they, are you hungry,
    are you coming with us, can you hear the rain, I heard you were away, did you hear the news, here it is,
    come over here, the alphabet has twenty six letters, write me a letter, the letter came today, a long
    story, the house has two stories, it is the same old story, on the second storey, read me the letter, tell
    me about your day, tell him the truth, tell me why, I can tell, tell me something about the garden, what
    is, what, can you, can you tell me, what colour, how, how are, tell me, tell me a, count to, do you, do
    you know, could you please, where are, I want to, say, could you, what time, who, please, yes, no, okay,
    maybe, I know, of course, really, all right then, one moment, that is nice"""
)


UNSEEN_WORDINGS: dict[Request, tuple[str, ...]] = {
    request: _listed(texts)
    for request, texts in {
        Request.HELLO: "hey there, greetings, howdy, a very good morning to you",
        Request.HOW_ARE_YOU: """how is your day going, how's life, are you doing all right, is everything
            fine""",
        Request.NAME: """what should I call you, could I have your name, what's the name they gave you""",
        Request.COUNT_FIVE: """say the numbers from one to five, give me the numbers up to five, start
            counting and end at five""",
        Request.COUNT_TEN: """say the numbers from one to ten, give me the numbers up to ten, start counting
            and end at ten""",
        Request.THANKS: """I appreciate it, that's very kind of you, I am grateful to you, much
            appreciated""",
        Request.STOP: "no more talking, enough of that, quit talking, be silent",
        Request.GOODBYE: "so long, until next time, I am leaving now, take care of yourself",
        Request.SEE: """what is in front of you, what does the camera show you, is someone in the picture,
            who is in front of the camera""",
        Request.COLOUR: """which colour does this have, what is the colour of this thing, say which colour I
            am holding, what colour have I got here""",
        Request.JOKE: """how about a joke, have you got a joke for me, I would like to hear a joke, let me
            hear something funny""",
        Request.SING: """how about a song, sing us something, I would like to hear a song, give me a
            song""",
        Request.HELP: """I don't know what to say, explain how this works, I am a bit lost here, which
            questions can I ask""",
        Request.REPEAT: "one more time, what was that, I missed that, could you say it once more",
        Request.TIME: """what does the clock say, which time is it now, have you any idea what time it is,
            let me know the time""",
        Request.AGE: """how many years have you lived, what age are you, since when do you exist, let me
            know your age""",
        Request.WHERE: """in which place are you, what is your address, where can I find you, where is it
            that you live""",
        Request.HEAR: """is my microphone working, am I being heard, do you hear what I say, does my voice
            reach you""",
        Request.ALPHABET: """give me the alphabet, go through the alphabet, name the letters from A to Z,
            how does the alphabet go""",
        Request.STORY: """how about a story, I would like to hear a story, have you got a story for me, make
            up a story""",
    }.items()
}
UNSEEN_NEAR_MISSES = _listed(
    """count to thirty, count the stars, you can count on him, count your money, it costs five or ten,
    seven of them stayed, he counted the days, the name of the road, my name is Susan, his name was
    in the paper, what is the name of your cat, what is her name, I don't recall the name of the
    town, the name is not important, what is the problem, what is in the box, what time does the bus
    leave, what time do you get up, the next time we meet, there is no time left, it took a long
    time, time flies, at what time did she call, tell her to stop the music, the bus stops here, the tram
    stop is closed, the rain has stopped, we never stop at night, they stopped for lunch, thank the
    driver, I have to thank my teacher, she never thanked him, say hello to your mother, he waved
    and said hello to us, the fellow in the hall, it was a good evening for a swim, they said
    goodbye at the station, by the way, buy a ticket, by tomorrow night it is done, the sea is rough
    today, I see the point, can you see the boats, who did you see at the party, I want to see the
    doctor, nobody sees the difference, the colour of the sky, what colour was the car, I like that
    colour, the colours of the flag, the joke was on him, he never jokes, a joke is not enough, she
    sang in the kitchen, we sing on sundays, my brother can sing, a song from the old days, he
    helped me with the boxes, nobody could help us, the help came too late, how old is the church,
    my dog is nine years old, the old lady next door, how are your children, how is the soup, how
    long is the road, how many do you want, where is the post office, where are my glasses, where
    does she live, where did they go, who is on the phone, who wrote the book, are you thirsty, are
    you going with them, can you hear the birds, did you hear the bell, I hear that he is ill, the
    Greek alphabet is older, send me a letter, the last letter was sad, the story of my life, a
    story about two brothers, his stories are never true, read me the paper, tell me about the trip,
    tell her the secret, tell us why, can you reach the shelf, do you know my cousin, would you open
    the window, could you pass the salt, I would like some tea, let me see the list, please sit
    down, what should, which, can you give me, do they, you know, would you, where did, I want, let
    me, not now, I suppose so"""
)


def wording(request: Request, rng: np.random.Generator, *, unseen: bool = False) -> str:
    """One way to ask, at times with a name or a word of politeness around it; `unseen` by any training."""
    text = str(rng.choice((UNSEEN_WORDINGS if unseen else WORDINGS)[request]))
    draws = rng.random(2)
    if draws[0] < OPENED:
        text = f"{rng.choice([o for o in OPENINGS if o.split()[0] not in text.split()])}, {text}"
    if draws[1] < ENDED:
        endings = ENDINGS[:1] if request in SHORT else ENDINGS
        text = (
            f"{text}, {endings[int(rng.integers(len(endings)))]}" if plain(text)[-1] not in ENDINGS else text
        )
    return text


def plain(text: str) -> list[str]:
    """The words of a sentence in lower case."""
    return re.findall(r"[a-z']+", text.lower())


def begins_or_ends_as_request(sentence: str) -> bool:
    """True if a wording is the sentence's beginning or its end: then it is no clear example of either."""
    words, asked = tuple(plain(sentence)), _asked()
    ends = range(1, min(len(words), max(map(len, asked))) + 1)
    return any(words[:end] in asked or words[-end:] in asked for end in ends)


@functools.cache
def _asked() -> frozenset[tuple[str, ...]]:
    every = [text for table in (WORDINGS, UNSEEN_WORDINGS) for texts in table.values() for text in texts]
    return frozenset(tuple(plain(text)) for text in every)

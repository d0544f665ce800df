"""What the agent does with what it perceives: when to answer, fall silent, nod, and where to look.

The listening tower says every 40 ms how likely it is that a request has just ended, and whether the user's
voice sounds; every 160 ms it says who and what is seen. These few rules turn that into a line to say and into
gestures, unit by unit. They hold no weights and draw from the session's seed alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch

from shared.models.pocket.config import FRAMES_PER_UNIT
from shared.models.pocket.replies import Colour, Request, reply
from shared.models.solver import unit_generator

SURE = 0.5  # mean chance of one request over ASKED_FRAMES that is taken for a request
ASKED_FRAMES = 4
DEAF_FRAMES = 20  # after an answer: what was asked still echoes in the heads for 0.6 s
VOICE = 0.5  # chance above which a frame counts as the user's voice
BARGE_FRAMES = 2  # more of voice than without while the agent speaks: it lets the user speak
TAIL_FRAMES = 2  # without voice: what the agent answers is over, and voice from then on is new
PAUSE_FRAMES = 8  # without voice: the user's turn has ended
LONG_TURN_FRAMES = 40  # of voice since the last nod: worth another
THERE = 0.5
FRESH = 0.3  # share of the newest unit in what is believed to be seen
GLANCE_CHANCE = 0.06  # a unit in which the eyes wander, when there is nobody to look at
NOD = (0.07, 0.25, 0.5, 0.75, 0.93, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07)  # of 40 ms each, as it was trained
SACCADE = 0.06  # the eyes stay where they are for less than this
GAZE_FRAMES = 2  # that the eyes take to get where they look


Gesture = tuple[tuple[float, float, float], ...]
"""Gaze to the right, gaze down and nod of each of a unit's frames."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Percept:
    """What one unit was perceived as; chances in [0, 1].

    `requests` holds a row of chances for each 40 ms, by `Request`; `voice` one chance each; `place` is where
    the user's face is, x to the right and y down in the camera's picture, in [-1, 1].
    """

    requests: tuple[tuple[float, ...], ...]
    voice: tuple[float, ...]
    present: float
    place: tuple[float, float]
    colours: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """What the agent does from this unit on: be silent, then say a line; gaze and nod of each frame."""

    hush: bool
    line: str
    heard: Request
    gesture: Gesture


@dataclass(slots=True)
class Manners:
    """One session's small memory of who spoke when, and of what is seen."""

    last_line: str = ""
    gaze: tuple[float, float] = (0.0, 0.0)
    _present: float = 0.0
    _colours: tuple[float, ...] = (1.0,) + (len(Colour) - 1) * (0.0,)
    _recent: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=ASKED_FRAMES))
    _answered: Request = Request.NONE
    _deaf: int = 0
    _voiced: int = 0  # frames of new voice, less those without since
    _pause: int = PAUSE_FRAMES
    _new_after: int = 0  # the voice that sounds is no interruption until it pauses for so long
    _gave_way: bool = False  # to voice that still sounds or has just ended
    _unheeded: int = 0  # frames of voice since the last nod
    _nod: list[float] = field(default_factory=list)
    _glance: tuple[float, float] = (0.0, 0.0)

    @property
    def present(self) -> bool:
        """Whether somebody is believed to be there."""
        return self._present > THERE

    @property
    def colour(self) -> Colour:
        """What is believed to be held up."""
        return Colour(max(Colour, key=lambda colour: self._colours[colour]))

    def respond(self, percept: Percept, *, seed: int, unit: int, speaking: bool) -> Intent:
        """Take in one unit; `speaking` says whether the agent is saying something."""
        self._look(percept)
        hush = self._listen(percept.voice, speaking=speaking)
        heard = self._asked(percept.requests)
        line = ""
        if heard:
            line = self._answer(heard, speaking=speaking)
            hush = hush or speaking
            self._gave_way = False
        return Intent(hush=hush, line=line, heard=heard, gesture=self._gesture(percept, seed, unit))

    def typed(self, line: str) -> None:
        """A typed line is said now: whoever is talking in the room meanwhile does not mean the agent."""
        self.last_line = line
        self._heed_voice_after(PAUSE_FRAMES)

    def _answer(self, heard: Request, *, speaking: bool) -> str:
        if heard is Request.STOP and (speaking or self._gave_way):
            return ""  # silence is the answer
        self.last_line = reply(heard, last=self.last_line, present=self.present, colour=self.colour)
        self._heed_voice_after(TAIL_FRAMES)
        return self.last_line

    def _heed_voice_after(self, pause: int) -> None:
        """The agent begins to speak: only voice that begins after a pause of so many frames is against it."""
        self._voiced = 0
        self._new_after = pause if self._pause < pause else 0

    def _look(self, percept: Percept) -> None:
        """One unit alone may err, or the user's hand be on its way."""
        self._present += FRESH * (percept.present - self._present)
        pairs = zip(self._colours, percept.colours, strict=True)
        self._colours = tuple(old + FRESH * (new - old) for old, new in pairs)

    def _asked(self, requests: tuple[tuple[float, ...], ...]) -> Request:
        """The request that has just ended, if one has."""
        heard = Request.NONE
        for chances in requests:
            self._recent.append(chances)
            mean = [sum(column) / ASKED_FRAMES for column in zip(*self._recent, strict=True)]
            likely = max(Request, key=lambda request: mean[request])
            sure = bool(likely) and mean[likely] > SURE
            if self._deaf:
                echo = sure and likely is self._answered  # for as long as it lasts
                self._deaf = max(self._deaf - 1, int(echo))
            elif sure:
                heard = self._answered = likely
                self._deaf = DEAF_FRAMES
        return heard

    def _listen(self, voice: tuple[float, ...], *, speaking: bool) -> bool:
        """Follow the user's voice; returns whether it cuts the agent short."""
        hush = False
        for chance in voice:
            if chance > VOICE:
                self._pause = 0
                self._unheeded += 1
                if not self._new_after:
                    self._voiced += 1
            else:
                self._pause += 1
                self._voiced = max(0, self._voiced - 1)
                self._nod_at_a_pause(speaking=speaking)
            if self._pause >= self._new_after:
                self._new_after = 0
            hush = hush or (speaking and self._voiced >= BARGE_FRAMES)
        self._gave_way = hush or (self._gave_way and self._pause < DEAF_FRAMES)
        return hush

    def _nod_at_a_pause(self, *, speaking: bool) -> None:
        if self._pause == 2 and self._unheeded >= LONG_TURN_FRAMES and not speaking:
            self._nod, self._unheeded = list(NOD), 0
        elif self._pause == PAUSE_FRAMES:
            self._unheeded = 0

    def _gesture(self, percept: Percept, seed: int, unit: int) -> Gesture:
        """Look at the user, who is mirrored: the camera's right is the agent's left."""
        generator = unit_generator(seed, unit, "glance")
        wander, x, y = torch.rand(3, generator=generator).tolist()
        if wander < GLANCE_CHANCE:
            self._glance = (1.6 * x - 0.8, 1.2 * y - 0.6)
        elif wander < 3 * GLANCE_CHANCE:
            self._glance = (0.0, 0.0)
        share = percept.present
        target = (
            -share * percept.place[0] + (1 - share) * self._glance[0],
            share * percept.place[1] + (1 - share) * self._glance[1],
        )
        start = self.gaze
        if max(abs(target[0] - start[0]), abs(target[1] - start[1])) > SACCADE:
            self.gaze = target
        frames = []
        for frame in range(FRAMES_PER_UNIT):
            done = min(1.0, (frame + 1) / GAZE_FRAMES)
            gaze = [a + done * (b - a) for a, b in zip(start, self.gaze, strict=True)]
            frames.append((gaze[0], gaze[1], self._nod.pop(0) if self._nod else 0.0))
        return tuple(frames)

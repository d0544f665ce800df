"""What the agent does with what it perceives: when to answer, fall silent, nod, and where to look.

The listening tower says every 40 ms how likely it is that a request has just ended, and whether the user's
voice sounds; every 160 ms it says who and what is seen. These few rules turn that into a line to say and into
gestures, unit by unit. They hold no weights and draw from the session's seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from shared.models.pocket.config import FRAMES_PER_UNIT
from shared.models.pocket.replies import Colour, Request, reply
from shared.models.solver import unit_generator

SURE = 0.6  # mean chance of one request over ASKED_FRAMES that is taken for a request
ASKED_FRAMES = 2
DEAF_FRAMES = 20  # after an answer: what was asked still echoes in the heads for 0.6 s
VOICE = 0.5  # chance above which a frame counts as the user's voice
BARGE_FRAMES = 4  # of voice without a gap while the agent speaks: it lets the user speak
PAUSE_FRAMES = 8  # without voice: the user's turn has ended
LONG_TURN_FRAMES = 40  # of voice since the last nod: worth another
THERE = 0.5
GLANCE_CHANCE = 0.06  # a unit in which the eyes wander, when there is nobody to look at
NOD = (0.07, 0.25, 0.5, 0.75, 0.93, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07)  # of 40 ms each, as it was trained
SACCADE = 0.06  # the eyes stay where they are for less than this
GAZE_FRAMES = 2  # that the eyes take to get where they look


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
    gesture: tuple[tuple[float, float, float], ...]


@dataclass(slots=True)
class Manners:
    """One session's small memory of who spoke when, and of what is seen."""

    last_line: str = ""
    present: bool = False
    colour: Colour = Colour.NONE
    place: tuple[float, float] = (0.0, 0.0)
    gaze: tuple[float, float] = (0.0, 0.0)
    _recent: list[tuple[float, ...]] = field(default_factory=list)
    _deaf: int = 0
    _voiced: int = 0  # frames of voice without a gap
    _voiced_before: bool = False  # the user was already speaking when the agent began
    _pause: int = PAUSE_FRAMES
    _unheeded: int = 0  # frames of voice since the last nod
    _nod: list[float] = field(default_factory=list)
    _glance: tuple[float, float] = (0.0, 0.0)

    def respond(self, percept: Percept, *, seed: int, unit: int, speaking: bool) -> Intent:
        """Take in one unit; `speaking` says whether the agent is saying something."""
        self._look(percept)
        hush = self._listen(percept.voice, speaking=speaking)
        heard = self._asked(percept.requests)
        line = ""
        if heard:
            hush = hush or speaking
            if heard is not Request.STOP or not speaking:
                line = reply(heard, last=self.last_line, present=self.present, colour=self.colour)
            self.answered_with(line)
        return Intent(hush=hush, line=line, heard=heard, gesture=self._gesture(percept, seed, unit))

    def answered_with(self, line: str) -> None:
        """Remember what was said last, be it an answer or a typed line."""
        self.last_line = line or self.last_line

    def _look(self, percept: Percept) -> None:
        self.present = percept.present > THERE
        self.colour = Colour(max(Colour, key=lambda colour: percept.colours[colour]))
        self.place = percept.place

    def _asked(self, requests: tuple[tuple[float, ...], ...]) -> Request:
        """The request that has just ended, if one has."""
        heard = Request.NONE
        for chances in requests:
            self._recent = [*self._recent[1 - ASKED_FRAMES :], chances]
            self._deaf = max(0, self._deaf - 1)
            if self._deaf or heard:
                continue
            mean = [sum(column) / ASKED_FRAMES for column in zip(*self._recent, strict=True)]
            likely = max(Request, key=lambda request: mean[request])
            if likely and mean[likely] > SURE:
                heard, self._deaf = likely, DEAF_FRAMES
        return heard

    def _listen(self, voice: tuple[float, ...], *, speaking: bool) -> bool:
        """Follow the user's voice; returns whether it cuts the agent short."""
        hush = False
        for chance in voice:
            if chance > VOICE:
                self._voiced += 1
                self._unheeded += 1
                self._pause = 0
            else:
                self._voiced = 0
                self._pause += 1
                self._nod_at_a_pause(speaking=speaking)
            hush = hush or (speaking and self._voiced == BARGE_FRAMES and not self._voiced_before)
        if not speaking:
            self._voiced_before = self._voiced > 0
        elif self._voiced == 0:
            self._voiced_before = False
        return hush

    def _nod_at_a_pause(self, *, speaking: bool) -> None:
        if self._pause == 2 and self._unheeded >= LONG_TURN_FRAMES and not speaking:
            self._nod, self._unheeded = list(NOD), 0
        elif self._pause == PAUSE_FRAMES:
            self._unheeded = 0

    def _gesture(self, percept: Percept, seed: int, unit: int) -> tuple[tuple[float, float, float], ...]:
        """Look at the user, who is mirrored: the camera's right is the agent's left."""
        generator = unit_generator(seed, unit, "glance")
        wander, x, y = torch.rand(3, generator=generator).tolist()
        if wander < GLANCE_CHANCE:
            self._glance = (1.6 * x - 0.8, 1.2 * y - 0.6)
        elif wander < 3 * GLANCE_CHANCE:
            self._glance = (0.0, 0.0)
        share = percept.present
        target = (
            -share * self.place[0] + (1 - share) * self._glance[0],
            share * self.place[1] + (1 - share) * self._glance[1],
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

"""Turn taking: when the agent answers, falls silent and nods, and where it looks.

Every 40 ms the listening tower gives the probability that a request has just ended and that the user speaks,
every 160 ms the vision encoder says who and what is in the picture. A few rules turn that into a line to say
and into gestures, unit by unit. They hold no weights and draw from the session's seed alone.
"""

from collections import deque
from dataclasses import dataclass, field

import torch

from shared.models.pocket.config import FRAMES_PER_UNIT
from shared.models.pocket.dialogue.replies import Colour, Request, reply
from shared.models.solver import unit_generator

REQUEST_THRESHOLD = 0.5  # of the mean probability of one request over REQUEST_FRAMES
REQUEST_FRAMES = 4
COOLDOWN_FRAMES = 20  # after a request: for 0.6 s its probability stays high
VOICE_THRESHOLD = 0.5  # of the probability that the user speaks in a frame
BARGE_IN_FRAMES = 2  # more of voice than without while the agent speaks: it lets the user speak
TAIL_FRAMES = 2  # without voice: what the agent answers is over, and voice from then on is new
PAUSE_FRAMES = 8  # without voice: the user's turn has ended
LONG_TURN_FRAMES = 40  # of voice since the last nod: worth another
PRESENCE_THRESHOLD = 0.5
SMOOTHING = 0.3  # weight of the newest unit in the running mean of what is in the picture
WANDER_CHANCE = 0.06  # a unit, that the gaze wanders when there is nobody to look at
NOD = (0.07, 0.25, 0.5, 0.75, 0.93, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07)  # of 40 ms each, as it was trained
SACCADE = 0.06  # the gaze stays where it is for less than this
GAZE_FRAMES = 2  # that the gaze takes to get to its target

Gesture = tuple[tuple[float, float, float], ...]
"""Gaze to the right, gaze down and nod of each of a unit's frames."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserDetections:
    """What was detected in one unit of the user; probabilities in [0, 1].

    `requests` holds a row of probabilities for each 40 ms, by `Request`; `voice` one each; `place` is where
    the user's face is, x to the right and y down in the camera's picture, in [-1, 1].
    """

    requests: tuple[tuple[float, ...], ...]
    voice: tuple[float, ...]
    present: float
    place: tuple[float, float]
    colours: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnDecision:
    """What the agent does in this unit: stops (`barge_in`), then says a line; gaze and nod of each frame."""

    barge_in: bool
    line: str
    heard: Request
    gesture: Gesture


@dataclass(slots=True)
class TurnTaking:
    """One session's record of who spoke when, and of what is in the picture."""

    last_line: str = ""
    gaze: tuple[float, float] = (0.0, 0.0)
    _present: float = 0.0
    _colours: tuple[float, ...] = (1.0,) + (len(Colour) - 1) * (0.0,)
    _recent: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=REQUEST_FRAMES))
    _answered: Request = Request.NONE
    _cooldown: int = 0
    _voiced: int = 0  # frames of new voice, less those without since
    _pause: int = PAUSE_FRAMES
    _new_after: int = 0  # the voice that sounds is no barge-in until it pauses for so many frames
    _yielded: bool = False  # to voice that still sounds or has just ended
    _since_nod: int = 0  # frames of voice since the last nod
    _nod: list[float] = field(default_factory=list)
    _wandering: tuple[float, float] = (0.0, 0.0)

    @property
    def present(self) -> bool:
        return self._present > PRESENCE_THRESHOLD

    @property
    def colour(self) -> Colour:
        return Colour(max(Colour, key=lambda colour: self._colours[colour]))

    def respond(self, user: UserDetections, *, seed: int, unit: int, speaking: bool) -> TurnDecision:
        """Take in one unit; `speaking` says whether the agent is saying something."""
        self._track_scene(user)
        barge_in = self._track_voice(user.voice, speaking=speaking)
        heard = self._request(user.requests)
        line = ""
        if heard:
            line = self._answer(heard, speaking=speaking)
            barge_in = barge_in or speaking
            self._yielded = False
        return TurnDecision(
            barge_in=barge_in, line=line, heard=heard, gesture=self._gesture(user, seed, unit)
        )  # fmt: skip

    def typed(self, line: str) -> None:
        """Note a typed line that is said now: who speaks in the room meanwhile does not mean the agent."""
        self.last_line = line
        self._ignore_voice_until_pause_of(PAUSE_FRAMES)

    def _answer(self, heard: Request, *, speaking: bool) -> str:
        if heard is Request.STOP and (speaking or self._yielded):
            return ""  # silence is the answer
        self.last_line = reply(heard, last=self.last_line, present=self.present, colour=self.colour)
        self._ignore_voice_until_pause_of(TAIL_FRAMES)
        return self.last_line

    def _ignore_voice_until_pause_of(self, frames: int) -> None:
        self._voiced = 0
        self._new_after = frames if self._pause < frames else 0

    def _track_scene(self, user: UserDetections) -> None:
        """Average over units: one alone may err, or the user's hand be on its way."""
        self._present += SMOOTHING * (user.present - self._present)
        pairs = zip(self._colours, user.colours, strict=True)
        self._colours = tuple(old + SMOOTHING * (new - old) for old, new in pairs)

    def _request(self, requests: tuple[tuple[float, ...], ...]) -> Request:
        """The request that has just ended, if one has."""
        heard = Request.NONE
        for probabilities in requests:
            self._recent.append(probabilities)
            mean = [sum(column) / REQUEST_FRAMES for column in zip(*self._recent, strict=True)]
            likely = max(Request, key=lambda request: mean[request])
            sure = bool(likely) and mean[likely] > REQUEST_THRESHOLD
            if self._cooldown:
                same = sure and likely is self._answered  # for as long as it lasts
                self._cooldown = max(self._cooldown - 1, int(same))
            elif sure:
                heard = self._answered = likely
                self._cooldown = COOLDOWN_FRAMES
        return heard

    def _track_voice(self, voice: tuple[float, ...], *, speaking: bool) -> bool:
        """Follow the user's voice; returns whether it is a barge-in."""
        barge_in = False
        for probability in voice:
            if probability > VOICE_THRESHOLD:
                self._pause = 0
                self._since_nod += 1
                if not self._new_after:
                    self._voiced += 1
            else:
                self._pause += 1
                self._voiced = max(0, self._voiced - 1)
                self._nod_at_a_pause(speaking=speaking)
            if self._pause >= self._new_after:
                self._new_after = 0
            barge_in = barge_in or (speaking and self._voiced >= BARGE_IN_FRAMES)
        self._yielded = barge_in or (self._yielded and self._pause < COOLDOWN_FRAMES)
        return barge_in

    def _nod_at_a_pause(self, *, speaking: bool) -> None:
        if self._pause == 2 and self._since_nod >= LONG_TURN_FRAMES and not speaking:
            self._nod, self._since_nod = list(NOD), 0
        elif self._pause == PAUSE_FRAMES:
            self._since_nod = 0

    def _gesture(self, user: UserDetections, seed: int, unit: int) -> Gesture:
        """Look at the user, who is mirrored: the camera's right is the agent's left."""
        generator = unit_generator(seed, unit, "glance")  # the name is a part of the seed
        wander, x, y = torch.rand(3, generator=generator).tolist()
        if wander < WANDER_CHANCE:
            self._wandering = (1.6 * x - 0.8, 1.2 * y - 0.6)
        elif wander < 3 * WANDER_CHANCE:
            self._wandering = (0.0, 0.0)
        share = user.present
        target = (
            -share * user.place[0] + (1 - share) * self._wandering[0],
            share * user.place[1] + (1 - share) * self._wandering[1],
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

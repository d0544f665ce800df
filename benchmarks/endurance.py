"""A long run of the pair, unpaced: what a round of units costs and what memory holds, stretch by stretch."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression, median
from typing import Any, cast

from torch import Tensor

from benchmarks.harness import ActiveUser, Performing, running_sessions
from shared.clock import UnpacedClock
from shared.memory import rss_mb
from shared.models.family import AgentMedia, Family, UserUnit
from thinker.engine.pipeline import Pipeline, PipelineOptions

STRETCH_UNITS = 375  # a minute
FEWEST_STRETCHES = 8
STARTED = 4  # the stretch that the last one is compared with: the fifth minute
MEDIA_EVERY = 10  # stretches, where media are left out of the others
WARM_UP_SHARE = 0.1  # of the stretches, for the slope of memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A minute of every session: the time for a unit of all, and the most memory that was resident."""

    units: int
    """Of each session, so far."""
    hours: float
    """Of media of all sessions, so far."""
    round_ms: float
    media: bool
    thinker_mb: float
    performer_mb: float


@dataclass(kw_only=True, slots=True)
class Course:
    """What a long run was like; times are medians."""

    sessions: int
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def compared(self) -> tuple[Stretch, Stretch]:
        """The fifth minute and the last."""
        return self.stretches[STARTED], self.stretches[-1]

    def slope_mb_per_hour(self, of: Callable[[Stretch], float]) -> float:
        """How memory grows, by least squares over the stretches with media, once warm."""
        whole = [each for each in self.stretches if each.media]
        kept = whole[math.ceil(WARM_UP_SHARE * len(whole)) :]
        return linear_regression([each.hours for each in kept], [of(each) for each in kept]).slope


def endure(
    family: Family,
    performer: Performing,
    options: PipelineOptions,
    *,
    sessions: int,
    units: int,
    all_media: bool,
    advance: Callable[[int], None],
) -> Course:
    """Run so many units of each session.

    Args:
        family: the Thinker's.
        performer: the other process.
        options: of the pipeline.
        sessions: how many.
        units: of each; so many at least that there are a few stretches.
        all_media: encode and decode every unit; otherwise only in some stretches, those that are compared
            among them.
        advance: told of every unit of all sessions.
    """
    stretch = max(1, min(STRETCH_UNITS, units // FEWEST_STRETCHES))
    count = max(FEWEST_STRETCHES, units // stretch)
    shortened = _Shortened(family)
    course = Course(sessions=sessions)
    active_users = [ActiveUser(family) for _ in range(sessions)]
    whole = cast("Family", shortened)
    with running_sessions(whole, performer.link, UnpacedClock(), options, active_users) as pipeline:
        for number in range(count):
            shortened.shows = all_media or number % MEDIA_EVERY == STARTED or number in {0, count - 1}
            seconds, memory = [], []
            for _ in range(stretch):
                seconds.append(_round(pipeline, sessions))
                memory.append((rss_mb() or 0.0, rss_mb(performer.pid) or 0.0))
                advance(1)
            units_done = (number + 1) * stretch
            course.stretches.append(
                Stretch(
                    units=units_done,
                    hours=units_done * sessions * family.media.unit_ms / 3.6e6,
                    round_ms=1e3 * median(seconds),
                    media=shortened.shows,
                    thinker_mb=max(thinker for thinker, _ in memory),
                    performer_mb=max(performer for _, performer in memory),
                )
            )
    return course


def _round(pipeline: Pipeline, sessions: int) -> float:
    """Let every session go on by a unit; the seconds that it takes."""
    began, goal = time.monotonic(), pipeline.counts.emitted + sessions
    while pipeline.counts.emitted < goal:
        pipeline.step()
    return time.monotonic() - began


class _Shortened:
    """A family whose users look and sound, and whose agents are seen and heard, only while `shows`.

    In between both keep what they had last; towers and cache go on as ever.
    """

    def __init__(self, family: Family) -> None:
        self.shows = True
        self._family = family
        self._tokens_1TC: Tensor | None = None
        self._emission: AgentMedia | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def encode(self, states: Sequence[Any], users: Sequence[UserUnit]) -> Tensor:
        """Tokens [B, T, C]."""
        if self.shows or self._tokens_1TC is None:
            tokens_BTC = self._family.encode(states, users)
            self._tokens_1TC = tokens_BTC[:1]
            return tokens_BTC
        return self._tokens_1TC.expand(len(states), -1, -1)

    def decode(self, states: Sequence[Any], latents: Sequence[Tensor]) -> list[AgentMedia]:
        """Sound and pictures of each."""
        if self.shows or self._emission is None:
            emissions = self._family.decode(states, latents)
            self._emission = emissions[0]
            return emissions
        return [self._emission] * len(states)

"""Simulated devices, and the sessions of a phase on their way through them under the real scheduler.

All times are in ms: the clock of the simulation counts ms where the Thinker's counts seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.planner.timeline import Timeline
from shared.clock import UnitClock, Wakeup
from shared.models.family import UserUnit
from thinker.engine.running_session import PendingUnit, RunningSession

NOBODY = UserUnit(pcm=np.zeros(0, np.float32), frames=np.zeros(0, np.uint8))


@dataclass(slots=True, eq=False)
class SimulatedDevice:
    """One processor, or several that work as one.

    Thinkers and whole processes choose among the groups that they have; Performers and decoder shards take
    what is in the queue.
    """

    role: str
    processors: int = 1
    groups: list[PhaseGroup] = field(default_factory=list)
    queue: deque[StageJob] = field(default_factory=deque)
    busy: bool = False
    worked_ms: float = 0.0


@dataclass(slots=True)
class StageJob:
    """Stages of a group's unit that a device does in one go."""

    stages: tuple[str, ...]
    group: PhaseGroup
    then: Callable[[], None]


class TimelineClock:
    """A `Clock` of simulated time. The simulation waits for nobody."""

    def __init__(self, timeline: Timeline, *, paced: bool) -> None:
        self.paced = paced
        self._timeline = timeline

    def now(self) -> float:
        """Milliseconds since the start of the simulation."""
        return self._timeline.now

    def reached(self, t: float) -> bool:
        """Whether the moment `t` has come; where time isn't paced, always."""
        return not self.paced or self._timeline.now >= t

    def wait_until(self, t: float, wakeup: Wakeup | None = None) -> bool:
        """Not to be called."""
        raise NotImplementedError


class PresentUser:
    """A user whose units are always there."""

    def lacking(self) -> bool:
        """Nothing is ever missing."""
        return False

    def take(self) -> UserUnit:
        """Nothing to see or hear."""
        return NOBODY


class SimulatedSession(RunningSession):
    """A session for the real scheduler; with decoder shards, decoding is none of the Thinker's business."""

    decodes_elsewhere: bool = False

    def may_decode(self) -> bool:
        """Whether the Thinker decodes the oldest of what is to be decoded."""
        return not self.decodes_elsewhere and super().may_decode()


@dataclass(slots=True, eq=False, kw_only=True)
class PhaseGroup:
    """The sessions of one phase of one Thinker, whose units come together: they are one batch in every stage.

    So one session stands for all of them before the scheduler. `ms` holds the costs of stages and messages
    for so many (`stage_costs`).
    """

    ms: dict[str, float]
    sessions: int
    session: SimulatedSession
    thinker: SimulatedDevice
    performer: SimulatedDevice
    decoder: SimulatedDevice
    unit_ms: float
    stage: int = 0  # of its unit, in one process
    late_units: set[int] = field(default_factory=set)
    emitted: list[tuple[float, float]] = field(default_factory=list)  # when decoded, and since complete
    late: int = 0

    @property
    def tick(self) -> float:
        """When the next state pass is due."""
        return self.session.clock.deadline(self.session.unit)

    def take(self) -> PendingUnit:
        """Take the user's next unit to encode it."""
        session = self.session
        return PendingUnit(
            unit=session.unit, user=session.source.take(), complete_at=session.clock.tick(session.unit)
        )

    def solved(self, unit: PendingUnit) -> None:
        """Latents are back."""
        if self.session.clock.behind_s(unit.unit + 1) > 0:
            self.late_units.add(unit.unit)
        self.session.undecoded.append(unit)

    def decoded(self) -> None:
        """The oldest unit is decoded: one that could have been so a unit earlier is late as well."""
        unit, now = self.session.undecoded.popleft(), self.session.clock.clock.now()
        self.emitted.append((now, now - unit.complete_at))
        self.late += unit.unit in self.late_units or now > unit.complete_at + 2 * self.unit_ms


def simulated_session(
    clock: TimelineClock, number: int, phase: int, first_tick: float, unit_ms: float, *, shards: bool
) -> SimulatedSession:
    """A session whose ticks come every `unit_ms` from `first_tick` on."""
    unit_clock = UnitClock(unit_ms, clock)
    unit_clock.start(first_tick)
    session = SimulatedSession(
        number=number, source=PresentUser(), on_unit=lambda _: None, clock=unit_clock, phase=phase
    )
    session.decodes_elsewhere = shards
    return session

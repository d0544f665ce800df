"""What counts as late and what as dropped, on a clock that only the work moves."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from performer.loop import Performer
from shared.clock import ManualClock
from shared.config import load_config
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.processes.model import link_shape
from thinker.engine.pipeline import Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import Timings
from thinker.engine.warmup import Silence
from thinker.report import UnitCounts
from thinker.units import MediaSpec

SLOTS = 2
SOLVE_S = 0.1


class Slow:
    """The tiny model, but a solve takes its time."""

    def __init__(self, family: Family, clock: ManualClock, solve_s: Mapping[int, float]) -> None:
        self._family = family
        self._clock = clock
        self._solve_s = solve_s

    def solve(self, states: list[Any], units: list[int]) -> list[Tensor]:
        self._clock.advance(max(self._solve_s.get(unit, SOLVE_S) for unit in units))
        latents: list[Tensor] = self._family.solve(states, units)
        return latents

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


class OneThread:
    """A wakeup that lets the Performer work while the Thinker waits."""

    def __init__(self, performer: Performer, theirs: LinkEnd, ours: LinkEnd) -> None:
        self._performer = performer
        self._theirs = theirs
        self._ours = ours

    def wait(self, timeout_s: float | None) -> bool:
        while self._theirs.receiver.wait(0.0):
            self._performer.step()
        return self._ours.receiver.wait(0.0)


Run = Callable[..., UnitCounts]


@pytest.fixture
def run(tiny_family: Family) -> Iterator[Run]:
    """`run({unit: seconds of its solve})`: so many units of a session in each phase that is named."""
    config = replace(load_config("tiny"), sessions=SLOTS)
    ours, theirs = loopback_pair(link_shape(tiny_family, config))
    names = tiny_family.media.__dataclass_fields__
    spec = MediaSpec(model="tiny", **{name: getattr(tiny_family.media, name) for name in names})

    def run(solve_s: Mapping[int, float], *, sessions: int = 1, units: int = 12) -> UnitCounts:
        clock = ManualClock()
        family: Any = Slow(tiny_family, clock, solve_s)
        performer = Performer(family, theirs, slots=SLOTS, checked=False)
        pipeline = Pipeline(
            family=family, link=ours, memory=family.allocate(SLOTS), clock=clock,
            wakeup=OneThread(performer, theirs, ours), options=PipelineOptions(slots=SLOTS),
            timings=Timings(clock, one_host=False), counts=UnitCounts(),
        )  # fmt: skip
        for number in range(1, sessions + 1):
            pipeline.open(
                RunningSession(
                    number=number, source=Silence(spec), on_unit=lambda _: None, clock=pipeline.unit_clock()
                )
            )
        while pipeline.counts.emitted < units * sessions:
            pipeline.step()
        return pipeline.counts

    with ours, theirs:
        yield run


@pytest.mark.parametrize("sessions", [1, 2])
def test_nothing_is_late_that_is_there_by_the_next_tick(run: Run, sessions: int) -> None:
    assert run({}, sessions=sessions) == UnitCounts(emitted=12 * sessions, late=0, dropped=0)


@pytest.mark.parametrize("sessions", [1, 2])
def test_one_slow_unit_is_one_late_unit_of_each_session_in_its_batch(run: Run, sessions: int) -> None:
    assert run({3: 0.2}, sessions=sessions) == UnitCounts(emitted=12 * sessions, late=sessions, dropped=0)


def test_what_is_behind_catches_up_and_is_late_until_it_has(run: Run) -> None:
    # Unit 3 is solved 0.17 s after the next tick; each that follows makes up 0.06 s.
    assert run({3: 0.33}).late == 3


@pytest.mark.parametrize("sessions", [1, 2])
def test_more_than_four_units_behind_are_given_up(run: Run, sessions: int) -> None:
    counts = run({3: 1.0}, sessions=sessions)  # 5.25 units after the tick of unit 4
    assert counts == UnitCounts(emitted=12 * sessions, late=sessions, dropped=5 * sessions)

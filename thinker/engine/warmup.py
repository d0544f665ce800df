"""Before the first session: a few units of silence, so that its first unit costs what the others do.

The same for as many sessions as there are slots, so that batches are warm too and it is known what they cost.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np

from shared.clock import UnpacedClock
from shared.models.family import UserUnit
from thinker.engine.admission import Cost
from thinker.engine.pipeline import Pipeline
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import LOOP, Timings
from thinker.report import UnitCounts
from thinker.units import MediaSpec

UNITS = 12  # that one session is run for
BATCH_UNITS = 5  # that each larger number of sessions is run for
WITHIN_S = 2.0  # no more is begun after that: large models on a CPU take seconds for a unit
FIRST_SESSION = 1 << 31  # numbers that no other session has: a late answer to one of these is dropped by it
FIRST_UNITS = 2  # of a run, which load libraries and touch memory, don't count


class Silence:
    """A user who isn't there, but has typed one word: so that what speech needs is loaded too."""

    def __init__(self, spec: MediaSpec) -> None:
        self._unit = UserUnit(
            pcm=np.zeros(spec.input_unit_samples, np.float32),
            frames=np.zeros((spec.frames_per_unit, spec.input_height, spec.input_width, 3), np.uint8),
            texts=("Ready.",),
        )  # fmt: skip

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        unit, self._unit = self._unit, replace(self._unit, texts=())
        return unit


def warm_up(pipeline: Pipeline, spec: MediaSpec, *, stopping: Callable[[], bool]) -> list[Cost]:
    """Run 1, 2, 4, ... sessions unpaced over the same link and memory; what each number costs."""
    slots = pipeline.options.slots
    enough_at = time.monotonic() + WITHIN_S
    numbers = itertools.count(FIRST_SESSION)
    costs: list[Cost] = []
    for sessions in sorted({1 << n for n in range(slots.bit_length())} | {slots}):
        if stopping() or (costs and time.monotonic() > enough_at):
            break
        costs.append(_run(pipeline, spec, list(itertools.islice(numbers, sessions)), enough_at, stopping))
    return costs


def _run(
    model: Pipeline, spec: MediaSpec, numbers: list[int], enough_at: float, stopping: Callable[[], bool]
) -> Cost:
    """What a unit of the sessions with these numbers costs: the median, so that a burst of else doesn't."""
    sessions, counts, clock = len(numbers), UnitCounts(), UnpacedClock()
    # Room for these alone, so that they are spread over the phases as when all slots are taken.
    options = replace(model.options, slots=sessions)
    pipeline = replace(model, clock=clock, options=options, counts=counts)
    for number in numbers:
        pipeline.open(
            RunningSession(
                number=number, source=Silence(spec), on_unit=lambda _: None, clock=pipeline.unit_clock()
            )
        )
    costs: list[Cost] = []
    while len(costs) < FIRST_UNITS + (UNITS if sessions == 1 else BATCH_UNITS):
        pipeline.timings = Timings(clock, one_host=model.timings.one_host)
        while counts.emitted < (len(costs) + 1) * sessions and not stopping():
            pipeline.step()
        costs.append(_cost(sessions, pipeline.timings))
        if stopping() or (len(costs) > FIRST_UNITS and time.monotonic() > enough_at):
            break
    for session in list(pipeline.sessions):
        pipeline.close(session)
    return _middle(costs[FIRST_UNITS:] or costs)


def _cost(sessions: int, unit: Timings) -> Cost:
    return Cost(
        sessions=sessions,
        thinker_ms=1e3 * unit.thinker_busy_s,
        performer_ms=1e3 * unit.performer_busy_s,
        loop_ms=sum(unit.stages.mean_ms(name) for name in LOOP if name not in {"send", "return"}),
    )


def _middle(costs: list[Cost]) -> Cost:
    return Cost(
        sessions=costs[0].sessions,
        thinker_ms=median(cost.thinker_ms for cost in costs),
        performer_ms=median(cost.performer_ms for cost in costs),
        loop_ms=median(cost.loop_ms for cost in costs),
    )

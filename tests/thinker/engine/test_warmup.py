"""What is run before the first session, and what is known afterwards."""

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from performer.loop import perform
from shared.clock import Clock, MonotonicClock
from shared.config import load_config
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.processes.model import link_shape
from thinker.engine.pipeline import Pipeline, PipelineOptions
from thinker.engine.timings import Timings
from thinker.engine.warmup import BATCH_UNITS, FIRST_UNITS, UNITS, Silence, warm_up
from thinker.report import UnitCounts
from thinker.units import MediaSpec

SLOTS = 4


@pytest.fixture
def link(tiny_family: Family) -> Iterator[LinkEnd]:
    """The Thinker's end, with a Performer at the other."""
    config = replace(load_config("tiny"), sessions=SLOTS)
    thinker, performer = loopback_pair(link_shape(tiny_family, config))
    work = threading.Thread(
        target=perform, args=(tiny_family, performer), kwargs={"slots": SLOTS, "stopping": lambda: False}
    )
    work.start()
    with performer:
        with thinker:
            yield thinker
        work.join()


@pytest.fixture
def spec(tiny_family: Family) -> MediaSpec:
    media = tiny_family.media
    return MediaSpec(model="tiny", **{name: getattr(media, name) for name in media.__dataclass_fields__})


@pytest.fixture
def make(tiny_family: Family, link: LinkEnd) -> Callable[..., Pipeline]:
    def make(**options: Any) -> Pipeline:
        clock = MonotonicClock()
        return Pipeline(
            family=tiny_family, link=link, memory=tiny_family.allocate(SLOTS), clock=clock,
            wakeup=link.receiver, options=PipelineOptions(**options), timings=Timings(clock, one_host=True),
            counts=UnitCounts(),
        )  # fmt: skip

    return make


@pytest.mark.parametrize(("slots", "tried"), [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 4])])
def test_every_doubling_and_the_largest_number_are_tried(
    make: Callable[..., Pipeline], spec: MediaSpec, slots: int, tried: list[int]
) -> None:
    pipeline = make(slots=slots, phases=2)
    costs = warm_up(pipeline, spec, stopping=lambda: False)
    assert [cost.sessions for cost in costs] == tried[: len(costs)], "none more once it has taken long"
    assert all(min(cost.thinker_ms, cost.performer_ms, cost.loop_ms) > 0 for cost in costs)
    assert pipeline.sessions == []
    assert pipeline.counts == UnitCounts(), "its units are no session's"
    assert pipeline.timings.thinker_busy_s == 0


def test_one_that_runs_out_of_time_still_knows_what_one_session_costs(
    make: Callable[..., Pipeline], spec: MediaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinker.engine.warmup.WITHIN_S", 0.0)
    (cost,) = warm_up(make(slots=SLOTS), spec, stopping=lambda: False)
    assert cost.sessions == 1
    assert cost.bound_ms > 0


def test_it_ends_when_told_to(make: Callable[..., Pipeline], spec: MediaSpec) -> None:
    asked = itertools.count()
    pipeline = make(slots=SLOTS)
    warm_up(pipeline, spec, stopping=lambda: next(asked) > 30)
    assert next(asked) < 40
    assert pipeline.sessions == []


def test_a_burst_of_something_else_does_not_count(
    make: Callable[..., Pipeline], spec: MediaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinker.engine.warmup.WITHIN_S", 600.0)
    numbers = itertools.count()

    class Disturbed(Timings):
        """Of all units, each third takes an hour longer."""

        def __init__(self, clock: Clock, *, one_host: bool) -> None:
            super().__init__(clock, one_host=one_host)
            self.thinker_busy_s = 3600.0 if next(numbers) % 3 == 0 else 0.0

    monkeypatch.setattr("thinker.engine.warmup.Timings", Disturbed)
    costs = warm_up(make(slots=SLOTS), spec, stopping=lambda: False)
    assert next(numbers) == 3 * FIRST_UNITS + UNITS + 2 * BATCH_UNITS
    assert all(cost.thinker_ms < 3.6e6 for cost in costs)


def test_silence_types_one_word(spec: MediaSpec) -> None:
    silence = Silence(spec)
    assert not silence.lacking()
    assert [silence.take().texts for _ in range(3)] == [("Ready.",), (), ()]

"""Sessions on the clock: whether a pair holds them."""

import random
import time
from dataclasses import dataclass

from benchmarks.harness import ActiveUser, running_sessions
from shared.clock import MonotonicClock
from shared.links.base import LinkEnd
from shared.models.family import Family
from thinker.engine.pipeline import PipelineOptions
from thinker.engine.timings import Timings
from thinker.report import UnitCounts

ARRIVE_WITHIN_S = 0.48  # random moments of the first three units
JUDGED_AFTER_S = 4.0  # whether sessions are hopelessly late
HOPELESS = 0.05  # share of late units


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Sessions that were held on the clock: shares of their units and of the time."""

    sessions: int
    late: float
    thinker_busy: float
    performer_busy: float
    timings: Timings


def hold_in_real_time(
    family: Family,
    link: LinkEnd,
    options: PipelineOptions,
    *,
    sessions: int,
    seconds: float,
    seed: int = 0,
) -> Held:
    """Hold sessions that begin at random moments for so many seconds, or until that is hopeless."""
    moments, now = random.Random(seed), time.monotonic()  # noqa: S311 - nothing secret
    active_users = [
        ActiveUser(family, arrives_at=now + moments.uniform(0, ARRIVE_WITHIN_S)) for _ in range(sessions)
    ]
    with running_sessions(family, link, MonotonicClock(), options, active_users) as pipeline:
        warm_until = now + 2 * ARRIVE_WITHIN_S
        while time.monotonic() < warm_until:
            pipeline.step()
        timings, counts = Timings(pipeline.clock, one_host=True), UnitCounts()
        pipeline.timings, pipeline.counts = timings, counts
        began = time.monotonic()
        while (lasted := time.monotonic() - began) < seconds:
            pipeline.step()
            if lasted > JUDGED_AFTER_S and late_share(counts) > HOPELESS:
                break
    return Held(
        sessions=sessions,
        late=late_share(counts),
        thinker_busy=timings.thinker_busy_s / lasted,
        performer_busy=timings.performer_busy_s / lasted,
        timings=timings,
    )


def late_share(counts: UnitCounts) -> float:
    """Of all units, those that were late or given up."""
    return (counts.late + counts.dropped) / max(1, counts.emitted + counts.dropped)

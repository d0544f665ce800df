"""Hours of units through a pair: memory, what a unit costs at the end, and where caches begin to forget."""

import argparse
import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.progress import Progress

from benchmarks.endurance import Course, Stretch, endure
from benchmarks.harness import ActiveUser, Performing, performing, pipeline_options, running_sessions
from benchmarks.result import BenchResult
from shared.clock import UnpacedClock
from shared.config import RuntimeConfig, load_config
from shared.devices import claim_core
from shared.models.family import Family, Role
from shared.processes.model import load_model

OWN = "as configured"
SPANS = {"window": 24, "full": 128}  # units, of the kinds of history that are tried besides
WHOLE_HOURS = 1.0  # of media, up to which nothing is left out
SLIDES = 5  # sessions that are watched; what they don't have in common is chance
BEYOND = 16  # units behind the last wrap
SETTLED = 4  # units after which nothing happens for the first time but forgetting
AROUND = 8  # units on either side that one is compared with
PHASES = 2  # of the long run: neither process waits for the other
MOST_ROWS = 16

Row = dict[str, str | float]


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Where each kind of history begins to forget, and the long run with the config's own."""
    config = dataclasses.replace(load_config(args.config), sessions=args.sessions)
    slides: dict[str, Slide] = {}
    for name, each in histories(config).items():
        family = load_model(each, "cpu", Role.THINKER)
        with claim_core("thinker", config.pin), performing(each, family) as performer:
            slides[name] = watch_slide(family, performer, each, far=units_of(args.hours, family))
            console.print(f"{name}: the costliest unit is {slides[name].worst:.2f} of those around it")
            if name == OWN:
                course = _long_run(args, console, each, family, performer)
    start, end = course.compared
    slopes = {
        "Thinker": course.slope_mb_per_hour(lambda stretch: stretch.thinker_mb),
        "Performer": course.slope_mb_per_hour(lambda stretch: stretch.performer_mb),
    }
    ratios: dict[str, float | None] = {
        "end_over_start": end.round_ms / start.round_ms,
        "worst_unit_over_median": max(each.worst for each in slides.values()),
        "rss_slope_mb_per_hour": max(slopes.values(), key=abs),
        "late_unit_over_early": slides[OWN].late_over_early,
    }
    return BenchResult(
        rows=[*_slide_rows(slides), *_course_rows(course)],
        ratios=ratios,
        notes=[
            _what_was_run(args, course),
            ", ".join(f"{who}: {slope:+.3f} MB an hour of media" for who, slope in slopes.items()),
        ],
    )


def histories(config: RuntimeConfig) -> dict[str, RuntimeConfig]:
    """The config, and its shape with random weights and other kinds of history."""
    found = {OWN: config}
    for history, span in SPANS.items():
        spans = dict.fromkeys(("picture", "sound", "text"), span)
        model = config.model | {"spans": spans}
        found[f"{history}, {span} units"] = dataclasses.replace(config, weights="", model=model)
    return found


def units_of(hours: float, family: Family) -> int:
    """How many units so many hours are."""
    return max(1, round(hours * 3.6e6 / family.media.unit_ms))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slide:
    """What units cost while a cache fills and begins to forget."""

    units: int
    settled_ms: float
    worst: float
    """The costliest unit ÷ the median of those around it."""
    late_over_early: float
    """A unit of a session that is hours old ÷ a unit of a young one."""


def watch_slide(family: Family, performer: Performing, config: RuntimeConfig, *, far: int) -> Slide:
    """Run sessions past every wrap of their caches; in turn with them others, which begin at unit `far`.

    What a unit takes is the least that it took in any session.
    """
    units = max(config.model.get("spans", {}).values(), default=max(SPANS.values())) + BEYOND
    runs: dict[int, list[list[float]]] = {0: [], far: []}
    for first in [*runs] * SLIDES:
        runs[first].append(_unit_costs(family, performer, config, units, first))
    early, late = ([min(costs) for costs in zip(*run, strict=True)] for run in runs.values())
    settled = median(early[-BEYOND:])
    return Slide(
        units=units,
        settled_ms=1e3 * settled,
        worst=worst_over_neighbours(early[SETTLED:]),
        late_over_early=median(late[-BEYOND:]) / settled,
    )


def worst_over_neighbours(costs: Sequence[float]) -> float:
    """The largest ratio of a cost to the median of those around it."""
    near = (costs[max(0, at - AROUND) : at + AROUND + 1] for at in range(len(costs)))
    return max(cost / median(each) for cost, each in zip(costs, near, strict=True))


def _unit_costs(
    family: Family, performer: Performing, config: RuntimeConfig, units: int, first: int
) -> list[float]:
    """Seconds between one unit and the next of a session that begins at unit `first`."""
    options, active_users = pipeline_options(config), [ActiveUser(family)]
    with running_sessions(family, performer.link, UnpacedClock(), options, active_users) as pipeline:
        pipeline.sessions[0].unit = first
        moments: list[float] = []
        while len(moments) <= units:
            pipeline.step()
            if pipeline.counts.emitted > len(moments):
                moments.append(time.monotonic())
    return [after - before for before, after in itertools.pairwise(moments)]


def _long_run(
    args: argparse.Namespace,
    console: Console,
    config: RuntimeConfig,
    family: Family,
    performer: Performing,
) -> Course:
    units = units_of(args.hours, family) // args.sessions
    options = pipeline_options(config, args.sessions, PHASES)
    with Progress(console=console, refresh_per_second=1, transient=True) as progress:
        task = progress.add_task(f"{args.hours:g} hours", total=units)
        return endure(
            family, performer, options, sessions=args.sessions, units=units,
            all_media=args.hours <= WHOLE_HOURS, advance=lambda number: progress.advance(task, number),
        )  # fmt: skip


def _slide_rows(slides: dict[str, Slide]) -> list[Row]:
    return [
        {
            "history": name,
            "units watched": slide.units,
            "ms a unit": slide.settled_ms,
            "worst unit": slide.worst,
            "late / early": slide.late_over_early,
        }
        for name, slide in slides.items()
    ]


def _course_rows(course: Course) -> list[Row]:
    shown = [each for each in course.stretches if each.media]
    return [_course_row(each) for each in shown[:: math.ceil(len(shown) / MOST_ROWS)]]


def _course_row(stretch: Stretch) -> Row:
    return {
        "units of each": stretch.units,
        "hours of media": stretch.hours,
        "ms a unit of all": stretch.round_ms,
        "Thinker, MB": stretch.thinker_mb,
        "Performer, MB": stretch.performer_mb,
    }


def _what_was_run(args: argparse.Namespace, course: Course) -> str:
    last = course.stretches[-1]
    run = f"{last.hours:.2f} hours of units: {course.sessions} sessions of {last.units}, in {PHASES} phases"
    if args.hours <= WHOLE_HOURS:
        return run
    return f"{run}; all of it through towers and cache, through senses and decoders one minute in ten"

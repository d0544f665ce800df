"""What batches of sessions cost, and how many a pair holds in real time, with and without the server."""

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from rich.console import Console

from benchmarks.harness import hold, performer_process, pipeline_options
from benchmarks.planner.measure import WARM_UP_UNITS, Batch
from benchmarks.real_time import Held, hold_in_real_time
from benchmarks.result import BenchResult
from benchmarks.served import serve_clients
from shared.clock import UnpacedClock
from shared.config import RuntimeConfig, load_config
from shared.devices import claim_core
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.processes.model import load_model
from thinker.engine.pipeline import PipelineOptions

BATCHES = (1, 2, 4, 8)
STAGES = ("encode", "state", "solve", "remember", "decode")
ROUNDS = 10  # all batch sizes take turns, so that what else runs on the machine meets all of them
PHASES = (1, 2, 4)
MOST_SESSIONS = 64
TRIED = 4  # sessions, for a first guess at how many fit
TRIED_UNITS = 12
LATE = 0.01  # share of units; with more of them sessions don't count as held

Row = dict[str, str | float]


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Batches first, then sessions on the clock by the number of phases, then the same through the server."""
    config = load_config(args.config)
    family = load_model(config, "cpu")
    stages = batch_costs(family, args.units)
    console.print("batches measured; now sessions in real time")
    rows = [_batch_row(name, costs) for name, costs in stages.items()]
    tried = in_real_time(config, family, args.seconds, console)
    rows += [_held_row(phases, each) for phases, found in tried.items() for each in found]
    held = {phases: _most(found) for phases, found in tried.items()}
    best = max(held, key=lambda phases: (held[phases], phases))
    del family
    served = serve_clients(
        dataclasses.replace(config, phases=best, sessions=held[best] + 2), clients=held[best] + 2,
        seconds=args.seconds,
    )  # fmt: skip
    held_by = (
        f"held: under {LATE:.0%} of units late or given up for {args.seconds} s, most with {_phases(best)};"
        " measured through pipeline, link and Performer, with users in the Thinker's process"
    )
    served_by = (
        "by the server: those that its admission lets in, which keeps a fifth of a unit free; measured"
        " through WebSocket clients of one process, on the same cores"
    )
    return BenchResult(
        rows=[*rows, served.row()],
        ratios={
            "solve_4_slots_over_1": stages["solve"][4] / stages["solve"][1],
            "sessions_held": held[best],
            "sessions_held_by_server": served.running if served.late < LATE else None,
            "model_side_p50_ms_of_sessions_held": _latency_ms(tried[best], held[best], 50),
            "model_side_p99_ms_of_sessions_held": _latency_ms(tried[best], held[best], 99),
        },
        notes=[
            "batches: ms, the median, of one process; sessions: late units have no latents at the next tick",
            held_by,
            served_by,
        ],
    )


def batch_costs(family: Family, units: int) -> dict[str, dict[int, float]]:
    """Milliseconds of each stage by the number of sessions in a batch, in one process, taking turns."""
    batches = [Batch(family, sessions) for sessions in BATCHES]
    singly = _Decoders(family)
    for batch in batches:
        batch.run(WARM_UP_UNITS)
        batch.forget()
    for _ in range(ROUNDS):
        for batch in batches:
            number = max(1, units // ROUNDS // batch.sessions)
            batch.run(number)
            singly.run(number, batch.sessions)
    costs = {name: {batch.sessions: batch.median_ms(name) for batch in batches} for name in STAGES}
    costs["decode one by one"] = {number: 1e3 * median(times) for number, times in singly.seconds.items()}
    return costs


class _Decoders:
    """Sessions that are decoded one after the other."""

    def __init__(self, family: Family) -> None:
        self.seconds: dict[int, list[float]] = {number: [] for number in BATCHES}
        self._family = family
        memory = family.allocate(max(BATCHES))
        self._states = [family.init_state(memory, slot, slot) for slot in range(max(BATCHES))]
        self._latents = torch.zeros(family.latent_bytes // 4)

    def run(self, units: int, sessions: int) -> None:
        """Decode so many units of so many sessions."""
        for _ in range(units):
            began = time.perf_counter()
            for state in self._states[:sessions]:
                self._family.decode([state], [self._latents])
            self.seconds[sessions].append(time.perf_counter() - began)


def in_real_time(
    config: RuntimeConfig, family: Family, seconds: float, console: Console
) -> dict[int, list[Held]]:
    """By the number of phases, every number of sessions that was tried, in order.

    One that all of them hold is tried with each, so that latencies can be compared.
    """
    config = dataclasses.replace(config, sessions=MOST_SESSIONS)
    found: dict[int, list[Held]] = {}
    with claim_core("thinker", config.pin), performer_process(config, family) as link:

        def held(sessions: int, phases: int) -> Held:
            options = pipeline_options(config, sessions, phases)
            return hold_in_real_time(family, link, options, sessions=sessions, seconds=seconds, seed=sessions)

        for phases in PHASES:
            first = min(TRIED, MOST_SESSIONS)
            for _ in range(2):  # what a few sessions take unpaced says where to begin
                first = _guess(family, link, pipeline_options(config, first, phases))
            found[phases] = search(partial(held, phases=phases), first, MOST_SESSIONS)
            console.print(f"{_phases(phases)}: {_most(found[phases])} sessions are held")
        common = min(_most(each) for each in found.values())
        for phases, each in found.items():
            if common and common not in {one.sessions for one in each}:
                each.append(held(common, phases))
            each.sort(key=lambda one: one.sessions)
    return found


def _guess(family: Family, link: LinkEnd, options: PipelineOptions) -> int:
    sessions = options.slots
    flat = hold(family, link, UnpacedClock(), options, units=TRIED_UNITS, sessions=sessions)
    return min(MOST_SESSIONS, max(1, int(sessions * family.media.unit_ms / flat.round_ms)))


def search(held: Callable[[int], Held], first: int, most: int) -> list[Held]:
    """Try numbers of sessions, beginning with `first`, until one is held and the next is not."""
    tried: list[Held] = []
    number, step, good, bad = first, max(1, first // 8), 0, most + 1
    while bad - good > 1:
        tried.append(held(number))
        if tried[-1].late < LATE:
            good = number
        else:
            bad = number
        if bad > most:
            number = min(most, good + step)
        elif good == 0:
            number = max(1, bad - step)
        else:
            number = (good + bad) // 2
    return tried


def _latency_ms(tried: list[Held], sessions: int, percent: float) -> float | None:
    """Model-side latency with so many sessions."""
    found = [each.timings.stages for each in tried if each.sessions == sessions]
    return found[0].percentile_ms("model_side", percent) if found else None


def _most(tried: list[Held]) -> int:
    return max((each.sessions for each in tried if each.late < LATE), default=0)


def _phases(number: int) -> str:
    return f"{number} phase{'s' if number > 1 else ''}"


def _batch_row(stage: str, costs: dict[int, float]) -> Row:
    row: Row = {"batched": stage} | {f"{number} sessions": ms for number, ms in costs.items()}
    return row | {"4 / 1": costs[4] / costs[1], "8 / 1": costs[8] / costs[1]}


def _held_row(phases: int, held: Held) -> Row:
    stages = held.timings.stages
    return {
        "phases": phases,
        "sessions": held.sessions,
        "late %": 100 * held.late,
        "model-side p50": stages.percentile_ms("model_side", 50),
        "p99": stages.percentile_ms("model_side", 99),
        "loop p99": stages.percentile_ms("loop", 99),
        "thinker busy %": 100 * held.thinker_busy,
        "performer busy %": 100 * held.performer_busy,
        "held": "yes" if held.late < LATE else "no",
    }

"""The pair beside one process, and beside two such replicas, on the same cores; and the memory of each."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from rich.console import Console

from benchmarks.layout_workers import Memory, Work, Worker, serve_one_process, serve_pair
from benchmarks.result import BenchResult
from shared.config import load_config

SESSIONS = (2, 4, 8)
PHASES = (1, 2, 4)
REPEATS = 3  # all layouts take turns, and the best of each counts: what else runs only ever adds

Row = dict[str, str | float]
Rates = dict[str, float]  # units a second, of all sessions together, by layout


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """One session in each layout, then several in pair and replicas."""
    config = load_config(args.config)
    one = dataclasses.replace(config, threads=1)
    pair = Worker(name="pair", serve=serve_pair, config=dataclasses.replace(one, sessions=max(SESSIONS)))
    single = Worker(name="one process, 1 thread", serve=serve_one_process, config=one)
    second = Worker(name="the other replica", serve=serve_one_process, config=one)
    threads = dataclasses.replace(config, threads=2)
    double = Worker(name="one process, 2 threads", serve=serve_one_process, config=threads)
    workers = (pair, single, second, double)
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
        for worker in workers:
            worker.await_ready()
        console.print("all layouts are loaded; now one session")
        alone = best(args.units, {each.name: _alone(each, args.units) for each in (pair, single, double)})
        many: dict[int, Rates] = {}
        for sessions in SESSIONS:
            console.print(f"now {sessions} sessions")
            units = max(1, args.units // sessions)
            layouts: dict[str, Callable[[], float]] = {
                f"pair, {phases} phase{'s' if phases > 1 else ''}": _together(pair, units, sessions, phases)
                for phases in PHASES
                if phases <= sessions
            }
            layouts["two replicas"] = _replicas(single, second, units, sessions)
            many[sessions] = best(args.units, layouts)
        memory = {each.name: each.memory() for each in (pair, single)}
    rows = [_row(1, alone), *(_row(sessions, rates) for sessions, rates in many.items())]
    return BenchResult(
        rows=[row for group in rows for row in group] + _memory_rows(memory[pair.name], memory[single.name]),
        ratios=_ratios(alone, many, memory[single.name]),
        notes=[
            f"units a second of all sessions together, unpaced; the best of {min(REPEATS, args.units)} runs",
            "pair over two replicas: each with the number of sessions, and of phases, that suits it best",
            "weights per device: the mean of the two devices, and the fuller one",
        ],
    )


def best(units: int, layouts: Mapping[str, Callable[[], float]]) -> Rates:
    """The highest rate of each layout in a few turns."""
    turns = [{name: rate() for name, rate in layouts.items()} for _ in range(min(REPEATS, units))]
    return {name: max(turn[name] for turn in turns) for name in layouts}


def _alone(worker: Worker, units: int) -> Callable[[], float]:
    return _together(worker, units, 1, 1)


def _together(worker: Worker, units: int, sessions: int, phases: int) -> Callable[[], float]:
    def rate() -> float:
        worker.begin(Work(units=units, sessions=sessions, phases=phases))
        worker.go()
        return 1e3 * sessions / worker.finish()

    return rate


def _replicas(first: Worker, second: Worker, units: int, sessions: int) -> Callable[[], float]:
    """Both at the same time, each with half of the sessions."""

    def rate() -> float:
        for worker in (first, second):
            worker.begin(Work(units=units, sessions=sessions // 2))
        for worker in (first, second):
            worker.go()
        return sum(1e3 * (sessions // 2) / worker.finish() for worker in (first, second))

    return rate


def _ratios(alone: Rates, many: dict[int, Rates], replica: Memory) -> dict[str, float | None]:
    pair, *one_process = alone.values()
    replicas = max(rates["two replicas"] for rates in many.values())
    pairs = max(rate for rates in many.values() for name, rate in rates.items() if name != "two replicas")
    ratios: dict[str, float | None] = {
        "pair_over_best_one_process": pair / max(one_process),
        "pair_over_two_replicas": pairs / replicas,
    }
    for sessions, rates in many.items():
        *of_pair, of_replicas = rates.values()
        ratios[f"pair_over_two_replicas_{sessions}_sessions"] = max(of_pair) / of_replicas
    weights = replica.weights
    assert weights is not None
    whole = weights.thinker + weights.performer + weights.shared
    return ratios | {
        "weights_per_device_pair_over_replica": (whole + weights.shared) / 2 / whole,
        "weights_of_fullest_device_over_replica": (max(weights.thinker, weights.performer) + weights.shared)
        / whole,
    }


def _row(sessions: int, rates: Rates) -> list[Row]:
    return [
        {
            "sessions": sessions,
            "layout": name,
            "units/s": rate,
            "ms a unit": 1e3 / rate,
            "ms a round": 1e3 * sessions / rate,
        }
        for name, rate in rates.items()
    ]


def _memory_rows(pair: Memory, replica: Memory) -> list[Row]:
    weights = replica.weights
    assert weights is not None
    needed = {
        "Thinker": weights.thinker + weights.shared,
        "Performer": weights.performer + weights.shared,
        "one process": weights.thinker + weights.performer + weights.shared,
    }
    return [
        {
            "process": name,
            "weights that it reads, MB": needed[name] / 1e6,
            "cache of a session, MB": replica.session_bytes / 1e6,
            "resident, MB": resident,
        }
        for name, resident in (pair.rss_mb | replica.rss_mb).items()
    ]

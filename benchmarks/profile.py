"""What each stage of a model costs on this machine, by the number of sessions: what `bench plan` reads."""

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.synchronize import Event

from rich.console import Console

from benchmarks.harness import hold, performer_process, spawned
from benchmarks.machine import describe
from benchmarks.planner.measure import WARM_UP_UNITS, Batch, weight_bytes
from benchmarks.planner.profile import Curve, ExchangeCost, Profile, Sizes, StageCost, StageCosts
from benchmarks.planner.workload import STAGES
from benchmarks.result import BenchResult
from shared.clock import MonotonicClock
from shared.config import RuntimeConfig, load_config
from shared.models.family import Family
from shared.models.layout import KVBlock
from shared.processes.model import load_model
from thinker.engine.pipeline import PipelineOptions

BATCHES = (1, 2, 4, 8)
MOST_ROUNDS = 10  # all batch sizes take turns, so that what else runs on the machine meets all of them
EXCHANGED_UNITS = 40
READY_WITHIN_S = 120.0


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Measure stages, exchange, sizes, and how much two busy processes slow each other down."""
    config = load_config(args.config)
    family = load_model(config, "cpu")
    batches = _measured(family, args.units)
    stages = {name: _stage(batches, name) for name in STAGES}
    console.print("stages measured; now the exchange, and two processes at once")
    profile = Profile(
        model=config.name,
        machine=", ".join(f"{key} {value}" for key, value in describe().items()),
        unit_ms=family.media.unit_ms,
        stages=StageCosts(**stages),
        exchange=_exchange(config, family, stages["pack"].at(1), min(args.units, EXCHANGED_UNITS)),
        sizes=_sizes(family),
        slow_down=((1, 1.0), (2, _slow_down(config, family, args.units))),
    )
    rows: list[dict[str, str | float]] = [
        {"ms": name} | {str(n): ms for n, ms in stage.ms} | {"p99/p50": dict(stage.spread)[99]}
        for name, stage in stages.items()
    ]
    ratios: dict[str, float | None] = {
        f"{name}_4_over_1": stages[name].at(4) / stages[name].at(1) for name in ("state", "solve", "decode")
    }
    ratios["two_processes_over_one"] = profile.slowed(2)
    return BenchResult(rows=rows, ratios=ratios, notes=_notes(profile), extra={"profile": asdict(profile)})


def _measured(family: Family, units: int) -> list[Batch]:
    batches = [Batch(family, sessions) for sessions in BATCHES]
    for batch in batches:
        batch.run(WARM_UP_UNITS)
        batch.forget()
    rounds = _rounds(units)
    for _ in range(rounds):
        for batch in batches:
            batch.run(max(1, units // rounds // batch.sessions))
    return batches


def _rounds(units: int) -> int:
    return max(2, min(MOST_ROUNDS, units))


def _stage(batches: list[Batch], name: str) -> StageCost:
    """More sessions never cost less; where that was measured it was by chance."""
    points: list[tuple[int, float]] = []
    for batch in batches:
        ms = max(batch.median_ms(name), points[-1][1] if points else 0.0)
        points.append((batch.sessions, round(ms, 4)))
    curve: Curve = tuple(points)
    return StageCost(ms=curve, spread=batches[0].spread(name))


def _exchange(config: RuntimeConfig, family: Family, pack_ms: float, units: int) -> ExchangeCost:
    """From a pair on the clock: how long a message is on its way while neither side works on it.

    Through memory of one host that does not depend on its size: what copying takes is in `pack` and `append`.
    """
    with performer_process(config, family) as link:
        timings = hold(family, link, MonotonicClock(), PipelineOptions(), units=units)
    there_ms = timings.stages.percentile_ms("send", 50) - pack_ms
    back_ms = timings.stages.percentile_ms("return", 50)
    return ExchangeCost(fixed_us=round(1e3 * max(0.0, there_ms + back_ms) / 2, 1), us_per_mb=0.0)


def _sizes(family: Family) -> Sizes:
    weights = weight_bytes(family)
    return Sizes(
        thinker_weights=weights.thinker,
        performer_weights=weights.performer,
        shared_weights=weights.shared,
        session_cache=family.memory_bytes(),
        state_slice=family.slice_bytes(KVBlock.STATE),
        remember_slice=family.slice_bytes(KVBlock.COMMIT),
        latents=family.latent_bytes,
    )


def _slow_down(config: RuntimeConfig, family: Family, units: int) -> float:
    """A unit in one process while another does the same ÷ while it rests; the two take turns."""
    apart, beside = Batch(family, 1), Batch(family, 1)
    with _neighbour(config) as busy:
        for batch in (apart, beside):
            batch.run(WARM_UP_UNITS)
            batch.forget()
        rounds = _rounds(units)
        for _ in range(rounds):
            busy.clear()
            apart.run(max(1, units // rounds // 2))
            busy.set()
            beside.run(max(1, units // rounds // 2))
    times = [sum(batch.median_ms(name) for name in STAGES) for batch in (apart, beside)]
    return round(max(1.0, times[1] / times[0]), 3)


@contextmanager
def _neighbour(config: RuntimeConfig) -> Iterator[Event]:
    """Another process that serves a session of its own whenever the event is set."""
    context = multiprocessing.get_context("spawn")
    ready, busy = context.Event(), context.Event()
    process = spawned(_serve, config, ready, busy)
    try:
        ready.wait(READY_WITHIN_S)
        yield busy
    finally:
        process.kill()
        process.join()


def _serve(config: RuntimeConfig, ready: Event, busy: Event) -> None:
    batch = Batch(load_model(config, "cpu"), 1)
    batch.run(WARM_UP_UNITS)
    ready.set()
    while True:
        busy.wait()
        batch.run(1)
        batch.forget()


def _notes(profile: Profile) -> list[str]:
    sizes = profile.sizes
    names = ("thinker_weights", "performer_weights", "shared_weights", "session_cache")
    thinker, performer, both, cache = (f"{getattr(sizes, name) / 1e6:.1f}" for name in names)
    return [
        f"MB of weights: read by the Thinker alone {thinker}, the Performer alone {performer}, both {both}",
        f"MB of a session's cache: {cache}; a message is on its way for {profile.exchange.fixed_us:.0f} us",
    ]

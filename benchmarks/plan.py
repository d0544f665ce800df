"""The best split of N devices, predicted by simulation from the stage costs that `bench profile` measured."""

import argparse
from dataclasses import asdict

from rich.console import Console

from benchmarks.planner.compare import Comparison, compare
from benchmarks.planner.layouts import ONE_PROCESS, PAIR, Cell
from benchmarks.planner.plan import Plan, Prediction, plan, predict
from benchmarks.planner.profile import Profile, read_profile
from benchmarks.planner.workload import Workload
from benchmarks.result import BenchResult
from shared.errors import ConfigError

LEGEND = """\
layouts: T Thinker, P Performer (ranks), D decoder shard; on: so many devices
one session: ms/unit unpaced; model-side p50 in real time
as many as are held in real time: units/s unpaced; p99 model-side; MB of the fullest device; nearest limit"""


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Predict every layout of the devices and say which is best for what."""
    if args.profile is None or args.devices is None:
        raise ConfigError(
            "bench plan needs --profile (a file that `bench profile --json` wrote) and --devices"
        )
    profile = read_profile(args.profile)
    console.print(f"profile of {profile.model}: {profile.machine}; {args.units} units a simulation")
    compared = compare(profile, args.measured, args.units) if args.measured else []
    found = plan(profile, args.devices, args.units)
    ratios = _ratios(found) | _split_or_not(profile, args.devices, args.units)
    if compared:
        ratios["worst_prediction_error"] = max(abs(each.error) for each in compared)
    return BenchResult(
        rows=[_row(each) for each in found.predictions],
        ratios=ratios,
        notes=_winners(found) + [_beside(each) for each in compared],
        extra={"predictions": [asdict(each) for each in found.predictions]},
    )


def _row(prediction: Prediction) -> dict[str, str | float]:
    """One session alone, then as many as are held in real time."""
    full = prediction.full
    return {
        "layout": prediction.name,
        "on": prediction.devices,
        "ms/unit": prediction.alone_flat.interval_ms,
        "p50": prediction.alone.latency_p50_ms,
        "held": prediction.sessions,
        "units/s": prediction.units_per_s,
        "full p99": full.latency_p99_ms if full else "",
        "MB": round(prediction.memory_bytes / 1e6),
        "limit": prediction.bound,
    }


def _ratios(found: Plan) -> dict[str, float | None]:
    lowest, most = found.lowest_latency, found.most_sessions
    return {
        "best_latency_ms": lowest.alone.latency_p50_ms if lowest else None,
        "best_interval_ms": found.highest_rate.alone_flat.interval_ms,
        "best_sessions": most.sessions if most else 0,
    }


def _split_or_not(profile: Profile, devices: int, units: int) -> dict[str, float | None]:
    """The two ratios of `bench layouts`, as predicted."""
    if devices < 2:
        return {}
    one, pair = predict(profile, ONE_PROCESS, 1, units), predict(profile, PAIR, 1, units)
    two = predict(profile, ONE_PROCESS, 2, units)
    return {
        "pair_over_best_one_process": one.alone_flat.interval_ms / pair.alone_flat.interval_ms,
        "pair_over_two_replicas": pair.units_per_s / two.units_per_s,
    }


def _winners(found: Plan) -> list[str]:
    rate, lowest, most = found.highest_rate, found.lowest_latency, found.most_sessions
    interval, lines = rate.alone_flat.interval_ms, [LEGEND]
    lines += [f"highest rate of one session: {_on(rate.cell, 1)}, {interval:.1f} ms, {rate.bound_alone}"]
    if lowest is None or most is None or most.full is None:
        return [*lines, "no layout holds even one session in real time"]
    latency, way = most.full.latency_p50_ms, most.load
    lines += [f"lowest latency of one session: {_on(lowest.cell, 1)}, {lowest.alone.latency_p50_ms:.1f} ms"]
    held = f"{most.sessions} ({_how(way)}; {latency:.1f} ms)"
    return [*lines, f"most sessions: {_on(most.cell, most.copies)}, {held}, {most.bound}"]


def _beside(compared: Comparison) -> str:
    return (
        f"{compared.layout}, {compared.sessions} unpaced: predicted {compared.predicted:.1f} units/s, "
        f"measured {compared.measured:.1f} ({compared.error:+.0%})"
    )


def _how(load: Workload) -> str:
    """The settings of a run."""
    return f"{load.phases} phase{'s' if load.phases > 1 else ''}"


def _on(cell: Cell, copies: int) -> str:
    devices = copies * cell.devices
    times = f"{copies} x " if copies > 1 else ""
    return f"{times}{cell} on {devices} device{'s' if devices > 1 else ''}"

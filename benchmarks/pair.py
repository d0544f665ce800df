"""The pair: per-stage times, how well the two processes overlap, and the same work in one process."""

import argparse
import dataclasses

from rich.console import Console

from benchmarks.harness import Measured, hold, one_process, performer_process
from benchmarks.result import BenchResult
from shared.chunking import ChunkMode
from shared.clock import Clock, MonotonicClock, UnpacedClock
from shared.config import load_config
from shared.devices import claim_core
from shared.processes.model import load_model
from thinker.engine.pipeline import PipelineOptions
from thinker.engine.running_session import Pacing
from thinker.engine.timings import LOOP, STAGES


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run all three and compare."""
    config = dataclasses.replace(load_config(args.config), sessions=1)
    family = load_model(config, "cpu")
    chunk_mode = ChunkMode(config.chunk_mode)
    with claim_core("thinker", config.pin), performer_process(config, family) as link:
        console.print(f"link {link.kind}, {args.units} units a run")

        def run(clock: Clock, pacing: Pacing) -> Measured:
            options = PipelineOptions(
                pacing=pacing, chunk_mode=chunk_mode,
                solve_timeout_s=config.solve_timeout_s,
            )  # fmt: skip
            return hold(family, link, clock, options, units=args.units)

        flat = run(UnpacedClock(), Pacing.EAGER)
        eager = run(MonotonicClock(), Pacing.EAGER)
        boundary = run(MonotonicClock(), Pacing.BOUNDARY)
        one = one_process(family, args.units)
    runs = {"unpaced": flat, "eager, 160 ms": eager, "boundary, 160 ms": boundary}
    rows: list[dict[str, str | float]] = []
    for name in (*STAGES, "solve_plus_exchange", "loop", "model_side", "unit_interval"):
        row: dict[str, str | float] = {"ms": name}
        for title, timings in runs.items():
            row |= {f"{title} p{p}": timings.stages.percentile_ms(name, p) for p in (50, 99)}
        rows.append(row)
    interval = flat.round_ms
    busy = flat.busy_ms()
    # Unpaced, latents may lie unread while the Thinker is busy; that must not loosen the bound. So the way
    # back is taken from the run on the clock, where the Thinker waits for them.
    loop = sum((eager if name == "return" else flat).stages.mean_ms(name) for name in LOOP)
    limits = {f"{name} busy": ms for name, ms in busy.items()} | {"loop": loop}
    bound = max(limits.values())
    stage_sum = sum(eager.stages.percentile_ms(name, 50) for name in STAGES if name != "remember")
    return BenchResult(
        rows=rows,
        ratios={
            "interval_over_bound": interval / bound,
            "model_side_over_stage_sum": eager.stages.percentile_ms("model_side", 50) / stage_sum,
            "one_process_over_pair": one / interval,
            "boundary_over_eager_model_side": boundary.stages.percentile_ms("model_side", 50)
            / eager.stages.percentile_ms("model_side", 50),
        },
        notes=[
            f"unpaced: {interval:.2f} ms a unit, one process: {one:.2f}",
            f"bound {bound:.2f} = max of {', '.join(f'{name} {ms:.2f}' for name, ms in limits.items())}",
        ],
    )

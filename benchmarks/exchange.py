"""How slices travel, packed or layer by layer: both ways over one pair."""

import argparse
import dataclasses

from rich.console import Console

from benchmarks.harness import cut_down, hold, performer_process
from benchmarks.result import BenchResult
from shared.chunking import ChunkMode
from shared.clock import UnpacedClock
from shared.config import RuntimeConfig, load_config
from shared.models.family import Role
from shared.models.layout import KVBlock
from shared.processes.model import load_model
from thinker.engine.pipeline import PipelineOptions

# What can't overlap within one session, but for the way back: unpaced, latents may lie unread for a while.
LOOP = ("remember", "state", "send", "append", "solve")


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run both unpaced and say what is left of the exchange in the loop."""
    config = cut_down(load_config(args.config), args.layers)
    rows, loops = [], {}
    for chunk_mode in (ChunkMode.PACKED, ChunkMode.LAYERWISE):
        console.print(chunk_mode.value)
        row = _run(config, chunk_mode, args.units)
        rows.append({"slices": chunk_mode.value} | row)
        loops[chunk_mode] = row["loop"]
    return BenchResult(
        rows=rows,
        ratios={"layerwise_over_packed_loop": loops[ChunkMode.LAYERWISE] / loops[ChunkMode.PACKED]},
        notes=[
            "means in ms, one session unpaced; send: from the end of the pass until the slice is there",
            "loop: remember + state + send + append + solve",
        ],
    )


def _run(config: RuntimeConfig, chunk_mode: ChunkMode, units: int) -> dict[str, float]:
    config = dataclasses.replace(config, sessions=1, chunk_mode=chunk_mode.value)
    family = load_model(config, "cpu", Role.THINKER)
    options = PipelineOptions(chunk_mode=chunk_mode, solve_timeout_s=config.solve_timeout_s, slots=1)
    with performer_process(config, family) as link:
        measured = hold(family, link, UnpacedClock(), options, units=units)
    mean = measured.stages.mean_ms
    stages = {name: mean(name) for name in ("state", "remember", "send", "append", "solve")}
    return {
        "slice MB": family.slice_bytes(KVBlock.COMMIT) / 1e6,
        **stages,
        "loop": sum(map(mean, LOOP)),
        "thinker busy": 1e3 * measured.thinker_busy_s / units,
        "performer busy": 1e3 * measured.performer_busy_s / units,
        "interval": measured.round_ms,
    }

"""How slices travel, packed or layer by layer, and which process remembers: all four ways over one pair."""

from __future__ import annotations

import argparse
import dataclasses

from rich.console import Console

from benchmarks.harness import cut_down, hold, performer_process
from scripts.bench import BenchResult
from scripts.common import load_model
from shared.chunking import ChunkMode, Rememberer
from shared.clock import UnpacedClock
from shared.config import RuntimeConfig, load_config
from shared.models.family import Role
from shared.models.layout import KVBlock
from thinker.engine.pipeline import PipelineOptions

# What can't overlap within one session, but for the way back: flat out, latents may lie unread for a while.
LOOP = ("remember", "state", "send", "append", "solve")


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run all four ways flat out and say what is left of the exchange in the loop."""
    config = cut_down(load_config(args.config), args.layers)
    rows, loops = [], {}
    for who in Rememberer:
        for exchange in (ChunkMode.PACKED, ChunkMode.LAYERWISE):
            console.print(f"{exchange.value}, the {who.value} remembers")
            row = _run(config, exchange, who, args.units)
            rows.append({"slices": exchange.value, "remembers": who.value} | row)
            loops[exchange, who] = row["loop"]
    packed = loops[ChunkMode.PACKED, Rememberer.THINKER]
    return BenchResult(
        rows=rows,
        ratios={
            "layerwise_over_packed_loop": loops[ChunkMode.LAYERWISE, Rememberer.THINKER] / packed,
            "performer_over_thinker_loop": loops[ChunkMode.PACKED, Rememberer.PERFORMER] / packed,
        },
        notes=[
            "means in ms, one session flat out; send: from the end of the pass until the slice is there",
            "loop: remember + state + send + append + solve, and the way back of a slice that travels back",
        ],
    )


def _run(config: RuntimeConfig, exchange: ChunkMode, who: Rememberer, units: int) -> dict[str, float]:
    config = dataclasses.replace(config, sessions=1, exchange=exchange.value, remember=who.value)
    family = load_model(config, "cpu", Role.THINKER)
    options = PipelineOptions(
        exchange=exchange, rememberer=who, solve_timeout_s=config.solve_timeout_s, slots=1
    )
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

"""How slices travel, packed or layer by layer, and which process remembers: all four ways over one pair."""

from __future__ import annotations

import argparse
import dataclasses

from rich.console import Console

from scripts.bench import BenchResult
from scripts.benches.harness import cut_down, hold, performer_process
from scripts.common import load_model
from shared.clock import FlatOutClock
from shared.config import RuntimeConfig, load_config
from shared.exchange import Exchange, Rememberer
from shared.models.family import Role
from shared.models.layout import Block
from thinker.pipeline import PipelineOptions

# What can't overlap within one session, but for the way back: flat out, latents may lie unread for a while.
LOOP = ("remember", "state", "send", "append", "solve")


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Run all four ways flat out and say what is left of the exchange in the loop."""
    config = cut_down(load_config(args.config), args.layers)
    rows, loops = [], {}
    for who in Rememberer:
        for exchange in (Exchange.PACKED, Exchange.LAYERWISE):
            console.print(f"{exchange.value}, the {who.value} remembers")
            row = _run(config, exchange, who, args.units)
            rows.append({"slices": exchange.value, "remembers": who.value} | row)
            loops[exchange, who] = row["loop"]
    packed = loops[Exchange.PACKED, Rememberer.THINKER]
    return BenchResult(
        rows=rows,
        ratios={
            "layerwise_over_packed_loop": loops[Exchange.LAYERWISE, Rememberer.THINKER] / packed,
            "performer_over_thinker_loop": loops[Exchange.PACKED, Rememberer.PERFORMER] / packed,
        },
        notes=[
            "means in ms, one session flat out; send: from the end of the pass until the slice is there",
            "loop: remember + state + send + append + solve, and the way back of a slice that travels back",
        ],
    )


def _run(config: RuntimeConfig, exchange: Exchange, who: Rememberer, units: int) -> dict[str, float]:
    config = dataclasses.replace(config, sessions=1, exchange=exchange.value, remember=who.value)
    family = load_model(config, "cpu", Role.THINKER)
    options = PipelineOptions(
        exchange=exchange, rememberer=who, latents_within_s=config.latents_within_s, slots=1
    )
    with performer_process(config, family) as link:
        measured = hold(family, link, FlatOutClock(), options, units=units)
    mean = measured.stages.mean_ms
    stages = {name: mean(name) for name in ("state", "remember", "send", "append", "solve")}
    return {
        "slice MB": family.slice_bytes(Block.REMEMBER) / 1e6,
        **stages,
        "loop": sum(map(mean, LOOP)),
        "thinker busy": 1e3 * measured.thinker_busy_s / units,
        "performer busy": 1e3 * measured.performer_busy_s / units,
        "interval": measured.round_ms,
    }

"""One Performer rank beside two that share the model: what a solve takes, and what of it is waiting for sums.

The two ranks are processes of this machine with a thread each. One rank and two take turns, so that whatever
else the machine does hits both.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.harness import cut_down, spawned
from benchmarks.planner.weights import weights_read
from benchmarks.result import BenchResult
from performer.group import RankGroup, join_leader_store, open_leader_store
from shared.config import RuntimeConfig, load_config
from shared.devices import claim_core
from shared.models.family import Family, Role
from shared.models.tensor_parallel import WHOLE, ShardSpec
from shared.processes.model import load_model

RANKS = 2
WITHIN_S = 600.0
WARM_UP_SOLVES = 2
UNIT = 10_000  # all that a session remembers is there

Solve = Callable[[], object]


class Sums:
    """A group's `reduce`, watched."""

    def __init__(self, group: RankGroup) -> None:
        self.num_bytes = self.took_s = 0.0
        self._group = group
        self.share = ShardSpec(rank=group.rank, ranks=group.ranks, reduce=self._reduce)

    def _reduce(self, x: Tensor) -> Tensor:
        began = time.monotonic()
        total = self._group.reduce(x)
        self.took_s += time.monotonic() - began
        self.num_bytes += x.nbytes * (self._group.ranks - 1)
        return total


def bench(args: argparse.Namespace, console: Console) -> BenchResult:
    """Measure `--units` solves of each."""
    config = cut_down(load_config(args.config), args.layers)
    store = open_leader_store()
    follower = spawned(_follow, config, store.port, args.units)
    try:
        with claim_core("rank 0", config.pin):
            group = RankGroup(
                store, rank=0, ranks=RANKS, timeout_s=WITHIN_S,
                exit_status=lambda: None if follower.is_alive() else "rank 1 has ended",
            )  # fmt: skip
            group.wait_for_all("started", threading.Event())
            group.connect()
            console.print(f"{args.units} solves each of {config.name}")
            return _measure(config, group, args.units)
    finally:
        follower.join(10)
        follower.kill()


def _measure(config: RuntimeConfig, group: RankGroup, solves: int) -> BenchResult:
    sums = Sums(group)
    whole, part = (load_model(config, "cpu", Role.PERFORMER, share) for share in (WHOLE, sums.share))
    solve_whole, solve_part = _solve_of(whole), _solve_of(part)
    weights_mb = _weights_mb(whole), _weights_mb(part)
    one, two, waited = [], [], []
    for _ in range(WARM_UP_SOLVES + solves):
        one.append(_ms(solve_whole))
        _meet(group)
        sums.took_s = sums.num_bytes = 0.0
        two.append(_ms(solve_part))
        waited.append(1e3 * sums.took_s)
    one, two, waited = (each[WARM_UP_SOLVES:] for each in (one, two, waited))
    one_ms, two_ms, sums_ms = map(statistics.median, (one, two, waited))

    def row(ranks: int, family: Family, ms: list[float], **more: float) -> dict[str, str | float]:
        return {
            "ranks": ranks, "solve ms p50": statistics.median(ms), "least": min(ms),
            "weights MB a rank": weights_mb[ranks > 1], "cache MB a session": family.memory_bytes() / 1e6,
            **more,
        }  # fmt: skip

    return BenchResult(
        rows=[
            row(1, whole, one, sums_ms=0.0, sent_mb=0.0),
            row(RANKS, part, two, sums_ms=sums_ms, sent_mb=sums.num_bytes / 1e6),
        ],
        ratios={
            "two_ranks_over_one": one_ms / two_ms,
            "two_ranks_over_one_at_best": min(one) / min(two),
            "sums_share": sums_ms / two_ms,
        },
        notes=["over one: how many times as fast; sums: sending, receiving and waiting for the other rank"],
        extra={"rank_speed_up": [[1, 1.0], [RANKS, round(one_ms / two_ms, 3)]]},
    )


def _follow(config: RuntimeConfig, port: int, solves: int) -> None:
    """The other rank: the same in the same order, without the whole model."""
    with claim_core("rank 1", config.pin):
        group = RankGroup(join_leader_store(port), rank=1, ranks=RANKS, timeout_s=WITHIN_S)
        group.connect()
        part = load_model(config, "cpu", Role.PERFORMER, group.shard)
        solve = _solve_of(part)
        _weights_mb(part)
        for _ in range(solves + WARM_UP_SOLVES):
            _meet(group)
            solve()


def _meet(group: RankGroup) -> None:
    """Let no rank begin before all are there."""
    group.reduce(torch.zeros(1))


def _solve_of(family: Family) -> Solve:
    state = family.init_state(family.allocate(1), 0, 0)
    return lambda: family.solve([state], [UNIT])


def _weights_mb(family: Family) -> float:
    return sum(weights_read([_solve_of(family), _solve_of(family)]).values()) / 1e6


def _ms(solve: Solve) -> float:
    began = time.monotonic()
    solve()
    return 1e3 * (time.monotonic() - began)

"""The stages of a unit, run one after the other as the pair does, for a batch of sessions on either side."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import quantiles

import torch
from torch import Tensor

from benchmarks.harness import ActiveUser
from benchmarks.planner.weights import Read, weights_read
from benchmarks.planner.workload import STAGES
from shared.models.family import Family
from shared.models.layout import KVBlock

WARM_UP_UNITS = 3
THINKER = ("encode", "state", "decode", "remember")
PERFORMER = ("solve",)
PERCENTS = (1, 10, 25, 50, 75, 90, 95, 99)


class Batch:
    """Sessions with a Thinker's state and a Performer's, in one process.

    The stages run in turn, so that each finds the processor's caches as it leaves them to the next; measured
    by itself, over and over, a stage would be faster than it is in use.
    """

    def __init__(self, family: Family, sessions: int) -> None:
        self.sessions = sessions
        self.seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self._family = family
        thinker, performer = family.allocate(sessions), family.allocate(sessions)
        slots = range(sessions)
        self.states = [family.init_state(thinker, slot, 1 + slot) for slot in slots]
        self.replicas = [family.init_state(performer, slot, 1 + slot) for slot in slots]
        self._active_users = [ActiveUser(family) for _ in slots]
        self._slices = {
            block: [torch.zeros(family.slice_bytes(block), dtype=torch.uint8) for _ in slots]
            for block in KVBlock
        }
        self._unit = 0
        self._users = [active_user.take() for active_user in self._active_users]
        self._tokens = torch.empty(0)
        self._latents: list[Tensor] = []

    def run(self, units: int) -> None:
        """Go on by so many units, and note how long each stage takes."""
        for _ in range(units):
            for stage, work in self.work():
                began = time.perf_counter()
                work()
                self.seconds[stage].append(time.perf_counter() - began)

    def forget(self) -> None:
        """Drop what was noted so far."""
        self.seconds = {stage: [] for stage in STAGES}

    def median_ms(self, stage: str) -> float:
        """Of what was noted."""
        return 1e3 * _percentile(self.seconds[stage], 50)

    def spread(self, stage: str) -> tuple[tuple[int, float], ...]:
        """Percentiles of what was noted ÷ p50."""
        p50 = _percentile(self.seconds[stage], 50)
        return tuple(
            (percent, round(_percentile(self.seconds[stage], percent) / p50, 3)) for percent in PERCENTS
        )

    def work(self) -> list[tuple[str, Callable[[], None]]]:
        """The next unit, stage by stage, each to be done once and in this order."""
        return [
            ("encode", self._encode),
            ("state", self._state_pass),
            ("pack", lambda: self._pack(KVBlock.STATE)),
            ("append", lambda: self._append(KVBlock.STATE)),
            ("solve", self._solve),
            ("decode", self._decode),
            ("remember", self._remember),
            ("pack", lambda: self._pack(KVBlock.COMMIT)),
            ("append", self._append_last),
        ]

    @property
    def _units(self) -> list[int]:
        return [self._unit] * self.sessions

    def _encode(self) -> None:
        self._users = [active_user.take() for active_user in self._active_users]
        self._tokens = self._family.encode(self.states, self._users)

    def _state_pass(self) -> None:
        self._family.state_pass(self.states, self._units, self._users, self._tokens)

    def _pack(self, block: KVBlock) -> None:
        for state, out in zip(self.states, self._slices[block], strict=True):
            self._family.export_kv(state, block, self._unit, out)

    def _append(self, block: KVBlock) -> None:
        for replica, payload in zip(self.replicas, self._slices[block], strict=True):
            self._family.import_kv(replica, block, self._unit, payload)

    def _append_last(self) -> None:
        self._append(KVBlock.COMMIT)
        self._unit += 1

    def _solve(self) -> None:
        self._latents = [latents.cpu() for latents in self._family.solve(self.replicas, self._units)]

    def _decode(self) -> None:
        self._family.decode(self.states, self._latents)

    def _remember(self) -> None:
        self._family.commit(self.states, self._units, self._latents)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightBytes:
    """Of what one process reads and the other does not, and of what both read."""

    thinker: int
    performer: int
    shared: int


def weight_bytes(family: Family) -> WeightBytes:
    """Watch the stages of two sessions that have nothing else in common."""
    batches = [Batch(family, 1), Batch(family, 1)]
    for batch in batches:
        batch.run(1)
    read: dict[str, Read] = {}
    for works in zip(*(batch.work() for batch in batches), strict=True):
        read[works[0][0]] = weights_read([work for _, work in works])
    thinker = {key: size for stage in THINKER for key, size in read[stage].items()}
    performer = {key: size for stage in PERFORMER for key, size in read[stage].items()}
    common = thinker.keys() & performer.keys()
    return WeightBytes(
        thinker=sum(size for key, size in thinker.items() if key not in common),
        performer=sum(size for key, size in performer.items() if key not in common),
        shared=sum(thinker[key] for key in common),
    )


def _percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]

"""What a cell of devices is asked to do, what came of it, and what the parts of a unit cost; times in ms."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.planner.layouts import Cell
from benchmarks.planner.profile import Profile

STAGES = ("encode", "state", "pack", "append", "solve", "decode", "remember")


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What a cell has to do: so many sessions in so many phases, so many units each.

    Unpaced, the next unit of a session is always due; else at its tick. `copies` of the cell do the same at
    the same time, as matters where devices slow each other down.
    """

    sessions: int = 1
    phases: int = 1
    units: int = 120
    unpaced: bool = False
    copies: int = 1
    jitter: bool = True
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of it, after some warm-up.

    Units a second of all sessions; ms from unit to unit of one; the share of units that were late; model-side
    latency in ms; the share of time that the busiest device of each role works.
    """

    units_per_s: float
    interval_ms: float
    late: float
    latency_p50_ms: float
    latency_p99_ms: float
    busy: dict[str, float]


def group_sizes(cell: Cell, sessions: int, phases: int) -> list[int]:
    """How sessions are spread: a group for every Thinker and phase, as even as can be."""
    groups = min(sessions, phases * cell.thinkers)
    return [sessions // groups + (index < sessions % groups) for index in range(groups)]


def stage_costs(profile: Profile, cell: Cell, sessions: int) -> dict[str, float]:
    """Milliseconds of every stage, and of every message on its way, for a batch on a cell's devices."""
    ms = {name: getattr(profile.stages, name).at(sessions) for name in STAGES}
    speed_up = dict(profile.rank_speed_up)[cell.ranks]
    ms["solve"] /= speed_up
    if profile.splits_decode and cell.shards:
        ms["decode"] /= dict(profile.decode_speed_up)[cell.shards]
    for name in ("state_slice", "remember_slice", "latents"):
        ms[name] = profile.exchange.ms(sessions * getattr(profile.sizes, name))
    return ms


def shares(profile: Profile, cell: Cell, load: Workload) -> dict[str, float]:
    """What takes how much of a unit's time, undisturbed: the busiest device of each role, and the loop.

    Nothing that is above 1 is held in real time, whatever the order of work. The loop is what can't overlap
    within a session: remember, state, send, append, solve, return.
    """
    works: dict[tuple[str, int], float] = {}
    for index, size in enumerate(group_sizes(cell, load.sessions, load.phases)):
        for part, work in _works(profile, cell, index, size):
            works[part] = works.get(part, 0.0) + work
    found: dict[str, float] = {}
    for (name, _), work in works.items():
        found[name] = max(found.get(name, 0.0), work / profile.unit_ms)
    return found


def _works(profile: Profile, cell: Cell, index: int, size: int) -> Iterator[tuple[tuple[str, int], float]]:
    """How long each device, by role and number, is busy with a group's unit, and how long its loop takes."""
    ms = stage_costs(profile, cell, size)
    if cell.one_process:
        work = sum(ms[name] for name in ("encode", "state", "solve", "decode", "remember"))
        yield ("process", index % cell.thinkers), work
        return
    thinker = ms["encode"] + ms["state"] + ms["remember"] + 2 * ms["pack"]
    yield ("thinker", index % cell.thinkers), thinker + (0.0 if cell.shards else ms["decode"])
    yield ("performer", index % cell.performers), 2 * ms["append"] + ms["solve"]
    yield ("loop", index), _loop_ms(ms)
    if cell.shards:
        yield ("decoder", 0 if profile.splits_decode else index % cell.shards), ms["decode"]


def _loop_ms(ms: dict[str, float]) -> float:
    """The slice of what the Thinker commits travels during the state pass."""
    thinker = ms["latents"] + ms["remember"] + ms["state"] + 2 * ms["pack"]
    return thinker + ms["state_slice"] + ms["append"] + ms["solve"]

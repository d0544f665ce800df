"""The search: every layout of N devices, and which is best for what."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.planner.layouts import Cell, cells
from benchmarks.planner.profile import Profile
from benchmarks.planner.simulate import simulate
from benchmarks.planner.workload import Outcome, Workload, shares

LATE_SHARE = 0.01  # fewer late units than this is real time
PHASES = (1, 2, 3, 4, 6, 8)
MOST_SESSIONS = 4096  # of a cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What copies of a cell do: with one session alone, and with as many as are held in real time.

    `alone_load` is the better way for one session, `load` the largest that each copy holds, `full` what comes
    of that (None where one session is too much), `flat` the same unpaced. The bounds say what is nearest to
    its limit, alone unpaced and with all.
    """

    cell: Cell
    copies: int
    alone_load: Workload
    alone: Outcome
    alone_flat: Outcome
    load: Workload
    full: Outcome | None
    flat: Outcome
    memory_bytes: int
    bound_alone: str
    bound: str

    @property
    def name(self) -> str:
        """For people."""
        return str(self.cell) if self.copies == 1 else f"{self.copies} x {self.cell}"

    @property
    def devices(self) -> int:
        """How many it uses."""
        return self.copies * self.cell.devices

    @property
    def sessions(self) -> int:
        """How many are held by all copies."""
        return self.copies * self.load.sessions if self.full else 0

    @property
    def realtime(self) -> bool:
        """Whether one session is held in real time."""
        return self.alone.late < LATE_SHARE

    @property
    def units_per_s(self) -> float:
        """Of all sessions, unpaced."""
        return self.copies * self.flat.units_per_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The best for each aim (None where nothing holds one session in real time), and of each kind."""

    lowest_latency: Prediction | None
    highest_rate: Prediction
    most_sessions: Prediction | None
    predictions: list[Prediction]


def plan(profile: Profile, devices: int, units: int = 120) -> Plan:
    """Find the best layouts of at most so many devices; every simulation runs for so many units.

    Devices may stay idle, so more of them never give a worse plan. All copies in a layout are alike.
    """
    found = _best_of_kinds(profile, devices, units)
    realtime = [each for each in found if each.realtime]
    one_session = [each for each in found if each.cell.for_one_session(profile)]
    lowest = min((each for each in one_session if each.realtime), key=_by_latency, default=None)
    highest = min(one_session, key=_by_interval)
    most = min(realtime, key=_by_sessions, default=None)
    shown: dict[str, Prediction] = {}
    for each in sorted(found, key=_by_sessions):
        shown.setdefault(each.cell.kind, each)
    shown |= {each.name: each for each in (lowest, highest, most) if each and each not in shown.values()}
    return Plan(
        lowest_latency=lowest, highest_rate=highest, most_sessions=most,
        predictions=sorted(shown.values(), key=lambda each: (each.cell.devices, each.name)),
    )  # fmt: skip


def predict(profile: Profile, cell: Cell, copies: int, units: int = 120) -> Prediction:
    """Predict the best that up to so many copies of a cell can do."""
    alone = Workload(units=units)
    # Where devices slow each other down, fewer copies may serve as many.
    counts: Iterable[int] = range(1, copies + 1) if len(profile.slow_down) > 1 else (copies,)
    found = [largest_load(profile, cell, Workload(copies=count, units=units)) for count in counts]
    load, full = max(found, key=lambda each: each[0].copies * each[0].sessions * (each[1] is not None))
    flat = simulate(profile, cell, replace(alone, unpaced=True))
    return Prediction(
        cell=cell, copies=load.copies,
        alone_load=alone, alone=simulate(profile, cell, alone), alone_flat=flat,
        load=load, full=full, flat=simulate(profile, cell, replace(load, unpaced=True)),
        memory_bytes=cell.memory_bytes(profile, load.sessions),
        bound_alone=_bound_alone(profile, cell, alone, flat), bound=_bound(profile, cell, load, full),
    )  # fmt: skip


def largest_load(profile: Profile, cell: Cell, load: Workload) -> tuple[Workload, Outcome | None]:
    """The most sessions that are held in real time, in the way of the lowest latency, and what comes of it.

    None where one session is too much.
    """
    tried: dict[Workload, Outcome] = {}

    def held(way: Workload, sessions: int) -> bool:
        load = replace(way, sessions=sessions)
        if load not in tried:
            tried[load] = simulate(profile, cell, load)
        return tried[load].late < LATE_SHARE

    limits = {way: _possible(profile, cell, way) for way in _ways(load)}
    best = 0
    for way, limit in limits.items():
        best = _last_from_above(best, limit, partial(held, way))
    useful = [way for way in limits if way.phases == 1 or way.phases * cell.thinkers <= best <= limits[way]]
    loads = [replace(way, sessions=best) for way in useful if best and held(way, best)]
    if not loads:
        return load, None
    chosen = min(loads, key=lambda each: tried[each].latency_p50_ms)
    return chosen, tried[chosen]


def _ways(load: Workload) -> list[Workload]:
    """Numbers of phases."""
    return [replace(load, phases=phases) for phases in PHASES]


def _best_of_kinds(profile: Profile, devices: int, units: int) -> list[Prediction]:
    """All layouts but those that can't beat another of their kind in sessions and aren't for one session."""

    def hoped_for(cell: Cell) -> int:
        copies = devices // cell.devices
        return copies * max(_possible(profile, cell, way) for way in _ways(Workload()))

    found: list[Prediction] = []
    most: dict[str, int] = {}
    for cell in sorted(cells(profile, devices), key=lambda cell: (-hoped_for(cell), cell.devices)):
        if cell.for_one_session(profile) or hoped_for(cell) > most.get(cell.kind, 0):
            found.append(predict(profile, cell, devices // cell.devices, units))
            most[cell.kind] = max(most.get(cell.kind, 0), found[-1].sessions)
    return found


def _possible(profile: Profile, cell: Cell, way: Workload) -> int:
    """No more sessions than these are held: for memory, or for time even if all went perfectly."""
    room = profile.sizes.device_bytes

    def possible(sessions: int) -> bool:
        share = max(shares(profile, cell, replace(way, sessions=sessions)).values())
        return share <= 1 and not 0 < room < cell.memory_bytes(profile, sessions)

    low, high = 0, 1
    while high <= MOST_SESSIONS and possible(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return low


def _last_from_above(good: int, limit: int, test: Callable[[int], bool]) -> int:
    """The largest number that passes, which is likely near the limit; `good` is known to."""
    bad, step = limit + 1, 1
    while bad - good > 1:
        tried = max(good + 1, bad - step)
        if test(tried):
            good, step = tried, max(1, (bad - tried) // 2)
        else:
            bad, step = tried, 2 * step
    return good


def _bound_alone(profile: Profile, cell: Cell, load: Workload, flat: Outcome) -> str:
    name, share = max(shares(profile, cell, load).items(), key=lambda item: item[1])
    return f"{name} {share * profile.unit_ms / flat.interval_ms:.0%}"


def _bound(profile: Profile, cell: Cell, load: Workload, full: Outcome | None) -> str:
    """What would first be too much with another session, and its share now."""
    if full is None:
        return "one session is too much"

    def taken(load: Workload) -> dict[str, float]:
        found = shares(profile, cell, load)
        if profile.sizes.device_bytes:
            found["memory"] = cell.memory_bytes(profile, load.sessions) / profile.sizes.device_bytes
        return found

    more = taken(replace(load, sessions=load.sessions + 1))
    name = max(more, key=lambda each: more[each])
    return f"{name} {full.busy.get(name, taken(load)[name]):.0%}"


def _by_latency(prediction: Prediction) -> tuple[float, ...]:
    return round(prediction.alone.latency_p50_ms, 6), prediction.cell.devices


def _by_interval(prediction: Prediction) -> tuple[float, ...]:
    return round(prediction.alone_flat.interval_ms, 6), prediction.cell.devices


def _by_sessions(prediction: Prediction) -> tuple[float, ...]:
    latency = prediction.full.latency_p50_ms if prediction.full else math.inf
    return -prediction.sessions, prediction.devices, latency

"""Discrete-event simulation of one cell of devices that serves some sessions; times in ms.

A Thinker chooses what to do next with the real scheduler (`thinker.engine.scheduler`), over real session
records on simulated time; only what stages and messages cost is pretended. Performers and decoder shards take
what comes first. One process does a group's unit from end to end, then the next that is due.
"""

import math
import random

from benchmarks.planner.layouts import Cell
from benchmarks.planner.profile import Profile
from benchmarks.planner.simulated import (
    PhaseGroup,
    SimulatedDevice,
    StageJob,
    TimelineClock,
    simulated_session,
)
from benchmarks.planner.timeline import Timeline
from benchmarks.planner.workload import STAGES, Outcome, Workload, group_sizes, stage_costs
from thinker.engine.running_session import Action, PendingUnit
from thinker.engine.scheduler import next_task

WARM_UP_UNITS = 8
ONE_PROCESS_ORDER = ("encode", "state", "solve", "decode", "remember")


def simulate(profile: Profile, cell: Cell, load: Workload) -> Outcome:
    """Run a load on a cell. The same arguments give the same outcome."""
    return _Simulation(profile, cell, load).run()


class _Simulation:
    def __init__(self, profile: Profile, cell: Cell, load: Workload) -> None:
        self._timeline = Timeline(lambda busy: profile.slowed(busy * load.copies))
        self._load = load
        self._unit_ms = profile.unit_ms
        self._random = random.Random(load.seed)  # noqa: S311 - no secret
        self._factors = {
            name: getattr(profile.stages, name).factors() if load.jitter else [1.0] for name in STAGES
        }
        self._devices: list[SimulatedDevice] = []
        self._groups: list[PhaseGroup] = []
        self._build(profile, cell)

    def _build(self, profile: Profile, cell: Cell) -> None:
        role = "process" if cell.one_process else "thinker"
        thinkers = [SimulatedDevice(role) for _ in range(cell.thinkers)]
        performers = [SimulatedDevice("performer", cell.ranks) for _ in range(cell.performers)]
        shards = [SimulatedDevice("decoder") for _ in range(cell.shards)]
        if profile.splits_decode and cell.shards:
            shards = [SimulatedDevice("decoder", cell.shards)]
        self._devices = [*thinkers, *performers, *shards]
        clock = TimelineClock(self._timeline, paced=not self._load.unpaced)
        sizes = group_sizes(cell, self._load.sessions, self._load.phases)
        for index, sessions in enumerate(sizes):
            thinker = thinkers[index % len(thinkers)]
            session = simulated_session(
                clock, index, len(thinker.groups), self._unit_ms * index / len(sizes), self._unit_ms,
                shards=bool(shards),
            )  # fmt: skip
            group = PhaseGroup(
                ms=stage_costs(profile, cell, sessions), sessions=sessions, session=session, thinker=thinker,
                performer=performers[index % len(performers)] if performers else thinker,
                decoder=shards[index % len(shards)] if shards else thinker, unit_ms=self._unit_ms,
            )  # fmt: skip
            thinker.groups.append(group)
            self._groups.append(group)

    def run(self) -> Outcome:
        """Until every group has had its units."""
        self._timeline.at(self._load.units * self._unit_ms, _look)
        for group in self._groups:
            self._timeline.at(0.0 if self._load.unpaced else group.tick, _look)
        while not self._finished():
            for device in self._devices:
                if not device.busy and (job := self._choose(device)) is not None:
                    self._start(device, job)
            self._timeline.advance()
        return self._outcome()

    def _finished(self) -> bool:
        if self._load.unpaced:
            return all(len(group.emitted) > self._load.units for group in self._groups)
        return self._timeline.now >= self._load.units * self._unit_ms

    def _start(self, device: SimulatedDevice, job: StageJob) -> None:
        device.busy = True
        began = self._timeline.now

        def end() -> None:
            device.busy = False
            device.worked_ms += self._timeline.now - began
            job.then()

        ms = sum(job.group.ms[stage] * self._random.choice(self._factors[stage]) for stage in job.stages)
        self._timeline.work(ms, device.processors, end)

    def _choose(self, device: SimulatedDevice) -> StageJob | None:
        if not device.groups:
            return device.queue.popleft() if device.queue else None
        if device.role == "process":
            return self._in_one_process(device)
        action, sessions = next_task(group.session for group in device.groups)
        if action is Action.WAIT:
            return None
        (session,) = sessions  # of a group, one stands for all
        return self._job(action, device.groups[session.phase or 0])

    def _job(self, action: Action, group: PhaseGroup) -> StageJob:
        """What a Thinker does with a group."""
        match action:
            case Action.ENCODE | Action.ENCODE_AHEAD:
                unit = group.take()
                return StageJob(("encode",), group, lambda: self._encoded(group, unit))
            case Action.STATE:
                return StageJob(("state", "pack"), group, lambda: self._state_passed(group))
            case Action.COMMIT | Action.COMMIT_AHEAD:
                return StageJob(("remember", "pack"), group, lambda: self._committed(group))
            case _:
                return StageJob(("decode",), group, group.decoded)

    def _encoded(self, group: PhaseGroup, unit: PendingUnit) -> None:
        group.session.encoded = unit

    def _state_passed(self, group: PhaseGroup) -> None:
        session = group.session
        session.solving, session.encoded = session.encoded, None
        self._next_unit(group)

        def arrived() -> None:
            group.performer.queue.append(StageJob(("append", "solve"), group, solved))

        def solved() -> None:
            self._timeline.after(group.ms["latents"], lambda: self._returned(group))

        self._timeline.after(group.ms["state_slice"], arrived)

    def _returned(self, group: PhaseGroup) -> None:
        session = group.session
        unit, session.solving = session.solving, None
        assert unit is not None
        session.uncommitted = unit
        group.solved(unit)
        if group.decoder is not group.thinker:
            decode = StageJob(("decode",), group, group.decoded)
            self._timeline.after(group.ms["latents"], lambda: group.decoder.queue.append(decode))

    def _committed(self, group: PhaseGroup) -> None:
        group.session.uncommitted = None
        append = StageJob(("append",), group, _look)
        self._timeline.after(group.ms["remember_slice"], lambda: group.performer.queue.append(append))

    def _in_one_process(self, device: SimulatedDevice) -> StageJob | None:
        ready = [
            group for group in device.groups if group.stage or group.session.clock.due(group.session.unit)
        ]
        if not ready:
            return None
        group = min(ready, key=lambda each: (each.stage == 0, each.tick))  # what has begun is finished
        if group.stage == 0:
            group.session.encoded = group.take()
        return StageJob((ONE_PROCESS_ORDER[group.stage],), group, lambda: self._one_process_did(group))

    def _one_process_did(self, group: PhaseGroup) -> None:
        stage = ONE_PROCESS_ORDER[group.stage]
        group.stage = (group.stage + 1) % len(ONE_PROCESS_ORDER)
        if stage == "solve":
            assert group.session.encoded is not None
            group.solved(group.session.encoded)
        elif stage == "decode":
            group.decoded()
        elif stage == "remember":
            self._next_unit(group)

    def _next_unit(self, group: PhaseGroup) -> None:
        group.session.unit += 1
        if not group.session.clock.due(group.session.unit):
            self._timeline.at(group.tick, _look)

    def _outcome(self) -> Outcome:
        steady = [_after_warm_up(group.emitted) for group in self._groups]
        rate = sum(
            group.sessions * (len(units) - 1) / (units[-1][0] - units[0][0])
            for group, units in zip(self._groups, steady, strict=True)
            if len(units) > 1
        )
        waits = sorted(
            wait
            for group, units in zip(self._groups, steady, strict=True)
            for _, wait in units
            for _ in range(group.sessions)
        ) or [self._timeline.now]  # nothing was done within all the time: it takes at least that
        return Outcome(
            units_per_s=1e3 * rate,
            interval_ms=self._load.sessions / rate if rate else self._timeline.now,
            late=0.0 if self._load.unpaced else self._late_share(),
            latency_p50_ms=_percentile(waits, 50), latency_p99_ms=_percentile(waits, 99),
            busy=self._busy(),
        )  # fmt: skip

    def _late_share(self) -> float:
        """Units that should have been there by now and are not are late, too."""
        late = 0
        for group in self._groups:
            late += group.sessions * (group.late + max(0, self._load.units - 2 - len(group.emitted)))
        return late / (self._load.sessions * self._load.units)

    def _busy(self) -> dict[str, float]:
        busy: dict[str, float] = {}
        for device in self._devices:
            share = device.worked_ms / self._timeline.now
            busy[device.role] = max(busy.get(device.role, 0.0), share)
        return busy


def _after_warm_up(units: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return units[min(WARM_UP_UNITS, max(0, len(units) - 1) // 2) :]


def _look() -> None:
    """Nothing to do but for idle devices to look again what there is."""


def _percentile(ordered: list[float], percent: float) -> float:
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]

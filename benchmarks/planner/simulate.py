"""Discrete-event simulation of one cell of devices that serves some sessions; times in ms.

The sessions of a phase are a *group*: their work is done as one batch. A group has at most one unit at the
Performer. A Thinker chooses among its groups as the real one does, Performers and decoder shards take what
comes first. One process does a group's unit from end to end, then the next that is due.
"""

from __future__ import annotations

import math
import random

from benchmarks.planner.group import Device, Group, Job, Solved
from benchmarks.planner.layouts import Cell
from benchmarks.planner.load import STAGES, Load, Outcome, group_sizes, stage_costs
from benchmarks.planner.profile import Profile
from benchmarks.planner.timeline import Timeline

WARM_UP_UNITS = 8
ONE_PROCESS_ORDER = ("encode", "state", "solve", "decode", "remember")


def simulate(profile: Profile, cell: Cell, load: Load) -> Outcome:
    """Run a load on a cell. The same arguments give the same outcome."""
    return _Simulation(profile, cell, load).run()


class _Simulation:
    def __init__(self, profile: Profile, cell: Cell, load: Load) -> None:
        self._timeline = Timeline(lambda busy: profile.slowed(busy * load.copies))
        self._load = load
        self._unit_ms = profile.unit_ms
        self._random = random.Random(load.seed)  # noqa: S311 - no secret
        self._factors = {
            name: getattr(profile.stages, name).factors() if load.jitter else [1.0] for name in STAGES
        }
        self._factors["performer remember"] = self._factors["remember"]
        self._devices: list[Device] = []
        self._groups: list[Group] = []
        self._build(profile, cell)

    def _build(self, profile: Profile, cell: Cell) -> None:
        thinkers = [Device("process" if cell.one_process else "thinker") for _ in range(cell.thinkers)]
        performers = [Device("performer", cell.ranks) for _ in range(cell.performers)]
        shards = [Device("decoder") for _ in range(cell.shards)]
        if profile.splits_decode and cell.shards:
            shards = [Device("decoder", cell.shards)]
        self._devices = [*thinkers, *performers, *shards]
        sizes = group_sizes(cell, self._load.sessions, self._load.phases)
        for index, sessions in enumerate(sizes):
            thinker = thinkers[index % len(thinkers)]
            group = Group(
                ms=stage_costs(profile, cell, sessions), sessions=sessions,
                first_tick=self._unit_ms * index / len(sizes), thinker=thinker,
                performer=performers[index % len(performers)] if performers else thinker,
                decoder=shards[index % len(shards)] if shards else thinker,
                unpaced=self._load.unpaced, remembers=not self._load.performer_remembers,
            )  # fmt: skip
            thinker.groups.append(group)
            self._groups.append(group)

    def run(self) -> Outcome:
        """Until every group has had its units."""
        self._timeline.at(self._load.units * self._unit_ms, _look)
        for group in self._groups:
            self._timeline.at(0.0 if group.unpaced else group.tick, _look)
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

    def _start(self, device: Device, job: Job) -> None:
        device.busy = True
        began = self._timeline.now

        def end() -> None:
            device.busy = False
            device.worked_ms += self._timeline.now - began
            job.then()

        ms = sum(job.group.ms[stage] * self._random.choice(self._factors[stage]) for stage in job.stages)
        self._timeline.work(ms, device.processors, end)

    def _choose(self, device: Device) -> Job | None:
        if not device.groups:
            return device.queue.popleft() if device.queue else None
        if device.role == "process":
            return self._in_one_process(device)
        now = self._timeline.now
        wishes = [(group.next_stage(now), group) for group in device.groups]
        ready = [(wish, group) for wish, group in wishes if wish is not None]
        if not ready:
            return None
        (_, stage), group = min(ready, key=lambda each: (each[0][0], each[1].tick))
        return self._job(stage, group)

    def _job(self, stage: str, group: Group) -> Job:
        """One of a Thinker's."""
        match stage:
            case "encode":
                group.take(self._timeline.now)
                return Job(("encode",), group, lambda: self._encoded(group))
            case "state":
                return Job(("state", "pack"), group, lambda: self._state_passed(group))
            case "remember":
                return Job(("remember", "pack"), group, lambda: self._remembered(group))
            case "append":
                return Job(("append",), group, lambda: self._appended(group))
            case _:
                return Job(("decode",), group, lambda: self._decoded(group))

    def _encoded(self, group: Group) -> None:
        group.encoded = True

    def _state_passed(self, group: Group) -> None:
        complete = group.complete
        group.encoded, group.solving = False, True
        self._next_tick(group)

        def arrived() -> None:
            group.performer.queue.append(Job(("append", "solve"), group, solved))

        def solved() -> None:
            self._timeline.after(group.ms["latents"], lambda: self._returned(group, complete))
            if not group.remembers:
                remember = Job(("performer remember", "pack"), group, remembered)
                group.performer.queue.appendleft(remember)

        def remembered() -> None:
            self._timeline.after(group.ms["remember_slice"], lambda: self._slice_came(group))

        self._timeline.after(group.ms["state_slice"], arrived)

    def _slice_came(self, group: Group) -> None:
        group.slice_came = True

    def _appended(self, group: Group) -> None:
        group.slice_came = group.unremembered = False

    def _returned(self, group: Group, complete: float) -> None:
        group.solving, group.unremembered = False, True
        self._solved(group, complete)
        if group.decoder is not group.thinker:
            decode = self._job("decode", group)
            self._timeline.after(group.ms["latents"], lambda: group.decoder.queue.append(decode))

    def _remembered(self, group: Group) -> None:
        group.unremembered = False
        append = Job(("append",), group, _look)
        self._timeline.after(group.ms["remember_slice"], lambda: group.performer.queue.append(append))

    def _in_one_process(self, device: Device) -> Job | None:
        now = self._timeline.now
        ready = [group for group in device.groups if group.step or group.due(now)]
        if not ready:
            return None
        group = min(ready, key=lambda each: (each.step == 0, each.tick))  # what has begun is finished
        if group.step == 0:
            group.take(now)
        return Job((ONE_PROCESS_ORDER[group.step],), group, lambda: self._stepped(group))

    def _stepped(self, group: Group) -> None:
        stage = ONE_PROCESS_ORDER[group.step]
        group.step = (group.step + 1) % len(ONE_PROCESS_ORDER)
        if stage == "solve":
            self._solved(group, group.complete)
        elif stage == "decode":
            self._decoded(group)
        elif stage == "remember":
            self._next_tick(group)

    def _next_tick(self, group: Group) -> None:
        group.next_tick(self._unit_ms)
        if group.tick > self._timeline.now and not group.unpaced:
            self._timeline.at(group.tick, _look)

    def _solved(self, group: Group, complete: float) -> None:
        late = self._timeline.now > complete + self._unit_ms
        group.undecoded.append(Solved(complete, late))

    def _decoded(self, group: Group) -> None:
        solved, now = group.undecoded.popleft(), self._timeline.now
        group.emitted.append((now, now - solved.complete))
        # Decoded a unit after its latents could still have been in time, it is late as well.
        group.late += solved.late or now > solved.complete + 2 * self._unit_ms

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

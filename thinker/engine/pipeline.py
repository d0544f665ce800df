"""All sessions' way through the pair: does what the schedule says, one step at a time (design section 3)."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shared.chunking import ChunkMode, Rememberer
from shared.clock import Clock, UnitClock, UnpacedClock, Wakeup
from shared.errors import LinkTimeout
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.models.layout import KVBlock
from shared.slices import Flags, Kind, SliceHeader
from thinker.engine.phases import Phases
from thinker.engine.running_session import Action, Asked, Encoded, Pacing, RunningSession, Solved
from thinker.engine.schedule import next_task
from thinker.engine.slice_sender import SliceSender
from thinker.engine.timings import Timings
from thinker.units import AgentUnit, UserSource

log = logging.getLogger(__name__)

MAX_BEHIND_UNITS = 4  # a loop that is further behind gives up units instead of chasing them
LOOK_EVERY_S = 0.004  # while a unit of the user is awaited


@dataclass(slots=True)
class Counts:
    """Units of all sessions since the Thinker started."""

    emitted: int = 0
    late: int = 0
    dropped: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineOptions:
    """How sessions are run: how many there is room for, in how many phases, and what is waited for.

    A Performer that takes longer than `solve_timeout_s` for a unit is taken for stuck.
    """

    slots: int = 1
    phases: int = 1
    pacing: Pacing = Pacing.EAGER
    exchange: ChunkMode = ChunkMode.AUTO
    rememberer: Rememberer = Rememberer.THINKER
    solve_timeout_s: float = 10.0
    checked: bool = False

    @property
    def room(self) -> int:
        """Sessions that a phase takes."""
        return -(-self.slots // self.phases)


@dataclass(kw_only=True)
class Pipeline:
    """The sessions that run. `step` does one thing and returns; the caller owns thread and loop."""

    family: Family[Any, Any]
    link: LinkEnd
    memory: Any
    clock: Clock
    wakeup: Wakeup
    options: PipelineOptions
    timings: Timings
    counts: Counts
    on_latents: Callable[[RunningSession, int, Tensor], None] | None = None  # for tests and recordings
    seats: list[RunningSession] = field(init=False, default_factory=list)
    _sender: SliceSender = field(init=False)
    _phases: Phases = field(init=False)
    _flat_out: bool = field(init=False)
    _returned: list[tuple[SliceHeader, Tensor]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        options, unit_s = self.options, self.family.media.unit_ms / 1000
        self._sender = SliceSender(
            self.family, self.link.sender, exchange=options.exchange, checked=options.checked,
            within_s=options.solve_timeout_s,
        )  # fmt: skip
        self._phases = Phases(options.phases, unit_s, options.room)
        self._flat_out = isinstance(self.clock, UnpacedClock)

    def open(
        self, *, session: int, seed: int, source: UserSource, on_unit: Callable[[AgentUnit], None]
    ) -> RunningSession:
        """Begin a session on both sides, in a free slot; its ticks begin with the user's first unit."""
        taken = {seat.slot for seat in self.seats}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        assert slot < self.options.slots, "no slot is free"
        clock = UnitClock(self.family.media.unit_ms / 1000, self.clock)
        clock.start()
        seat = RunningSession(
            session=session, slot=slot, source=source, on_unit=on_unit, clock=clock,
            pacing=self.options.pacing, state=self.family.init_state(self.memory, slot, seed),
            unpaced=self._flat_out, remembers=self.options.rememberer is Rememberer.THINKER,
        )  # fmt: skip
        self._sender.begin(session, slot, seed)
        self.seats.append(seat)
        self.seats.sort(key=lambda each: each.slot)  # neighbours in the cache are neighbours in a batch
        return seat

    def close(self, seat: RunningSession) -> None:
        """End a session; its slot is free at once."""
        self.seats.remove(seat)
        self._sender.end(seat)

    def step(self) -> None:
        """Take what has come, then do the most urgent thing, or wait for the link or the next tick."""
        self.collect()
        for seat in self.seats:
            self._place(seat)
        action, seats = next_task(self.seats)
        match action:
            case Action.ENCODE | Action.ENCODE_AHEAD:
                self._encode(seats)
            case Action.STATE:
                self._state_pass(seats)
            case Action.DECODE:
                self._decode(seats)
            case Action.COMMIT | Action.COMMIT_AHEAD:
                self._remember(seats)
            case Action.WAIT:
                self._wait()

    def _place(self, seat: RunningSession) -> None:
        """Give a session its phase once the user's first unit is there: from then on units come in time."""
        if seat.phase is not None or seat.awaits_user():
            return
        now = self.clock.now()
        taken = [other.phase for other in self.seats if other.phase is not None]
        seat.phase, first_tick = self._phases.place(now, taken)
        seat.clock.start(first_tick)
        seat.complete_before_tick_s = first_tick - now

    def collect(self) -> None:
        """Take latents off the link; those of a batch are handed on together."""
        while (message := self.link.receiver.poll()) is not None:
            header, payload = message
            if header.kind is Kind.COMMIT:
                self._append(header, payload)
            else:
                self._returned.append((header, payload.view(torch.float32).clone()))
            self.link.receiver.release()
            if self._returned and not header.flags & Flags.MORE:
                batch, self._returned = self._returned, []
                self._take_back(batch, time.monotonic_ns())

    def _append(self, header: SliceHeader, payload: Tensor) -> None:
        """Take in the Performer's own pass over what it has made."""
        for seat in self.seats:
            if seat.session == header.session:
                began = time.monotonic()
                self.family.import_kv(seat.state, KVBlock.COMMIT, header.unit, payload)
                self.timings.remembered(header, seat, time.monotonic() - began)
                seat.unremembered = None

    def _take_back(self, batch: list[tuple[SliceHeader, Tensor]], returned_ns: int) -> None:
        by_number = {seat.session: seat for seat in self.seats}
        came = [
            (header, latents, by_number[header.session])
            for header, latents in batch
            if header.session in by_number  # others were closed meanwhile
        ]
        if came:
            headers, _, seats = zip(*came, strict=True)
            self.timings.exchanged(headers, seats, returned_ns)
        for header, latents, seat in came:
            assert header.unit == seat.solving, f"latents of unit {header.unit}, not {seat.solving}"
            seat.solving, seat.returned_ns = None, returned_ns
            if self.on_latents is not None:
                self.on_latents(seat, header.unit, latents)
            if seat.clock.behind_s(header.unit + 1) > 0 and not self._flat_out:
                self.counts.late += 1
            solved = Solved(unit=header.unit, latents=latents)
            seat.undecoded.append(solved)
            seat.unremembered = solved

    @property
    def idle(self) -> bool:
        """Whether nothing is under way at the Performer."""
        return all(
            seat.solving is None and (seat.remembers or seat.unremembered is None) for seat in self.seats
        )

    def _encode(self, seats: Sequence[RunningSession]) -> None:
        users, complete_at = [], []
        for seat in seats:
            if not self._flat_out:
                self._give_up_lost_time(seat)
            # From here the unit is complete: on the clock at or before its tick, flat out at this moment.
            tick = time.monotonic() if self._flat_out else seat.clock.deadline(seat.unit)
            complete_at.append(tick - (0.0 if self._flat_out else seat.complete_before_tick_s))
            users.append(seat.source.take())
        with self.timings.stage("encode", seats):
            tokens_BTC = self.family.encode([seat.state for seat in seats], users)
        for row, seat in enumerate(seats):
            seat.encoded = Encoded(
                user=users[row], tokens=tokens_BTC[row : row + 1], complete_at=complete_at[row]
            )

    def _give_up_lost_time(self, seat: RunningSession) -> None:
        behind = int(seat.clock.behind_s(seat.unit) / seat.clock.unit_s)
        if behind > MAX_BEHIND_UNITS:
            log.warning("session %d: %d units behind, giving them up", seat.session, behind)
            seat.clock.skip(behind)
            self.counts.dropped += behind

    def _state_pass(self, seats: Sequence[RunningSession]) -> None:
        encoded = [seat.encoded for seat in seats if seat.encoded is not None]
        assert len(encoded) == len(seats)
        units = [seat.unit for seat in seats]
        with self.timings.stage("state", seats):
            decisions = self.family.state_pass(
                [seat.state for seat in seats],
                units,
                [each.user for each in encoded],
                torch.cat([each.tokens for each in encoded]),
                self._sender.along(KVBlock.STATE, seats, units),
            )
        sent_ns, seconds = self._sender.after(KVBlock.STATE, seats, units)
        self.timings.packed(seconds)
        for seat, each, decision in zip(seats, encoded, decisions, strict=True):
            if decision.warning:
                log.warning("session %d: %s", seat.session, decision.warning)
            seat.asked[seat.unit] = Asked(user=each.user, complete_at=each.complete_at, decision=decision)
            seat.sent_ns = sent_ns
            seat.solving, seat.encoded = seat.unit, None
            seat.unit += 1

    def _decode(self, seats: Sequence[RunningSession]) -> None:
        solved = [seat.undecoded.popleft() for seat in seats]
        with self.timings.stage("decode", seats):
            made = self.family.decode([seat.state for seat in seats], [each.latents for each in solved])
        for seat, each, media in zip(seats, solved, made, strict=True):
            asked = seat.asked.pop(each.unit)
            self.timings.emitted(seat, asked.complete_at)
            self.counts.emitted += 1
            seat.on_unit(
                AgentUnit(unit=each.unit, epoch=asked.user.epoch, decision=asked.decision, media=media)
            )

    def _remember(self, seats: Sequence[RunningSession]) -> None:
        solved = [seat.unremembered for seat in seats if seat.unremembered is not None]
        assert len(solved) == len(seats)
        units = [each.unit for each in solved]
        with self.timings.stage("remember", seats):
            self.family.commit(
                [seat.state for seat in seats],
                units,
                [each.latents for each in solved],
                self._sender.along(KVBlock.COMMIT, seats, units),
            )
        _, seconds = self._sender.after(KVBlock.COMMIT, seats, units)
        self.timings.packed(seconds)
        for seat in seats:
            seat.unremembered = None

    def _wait(self) -> None:
        """Until latents come, a session opens or closes, a tick comes or a user's unit may be there."""
        moments = [self._look_again_at(seat) for seat in self.seats]
        to_come = [moment for moment in moments if moment is not None]
        if to_come:
            self.clock.wait_until(min(to_come), self.wakeup)
        elif not self.wakeup.wait(self.options.solve_timeout_s if self.seats else None) and self.seats:
            seat = min(self.seats, key=lambda each: each.sent_ns)  # only latents are missing
            raise LinkTimeout(
                f"the performer sent no latents of unit {seat.solving} of session {seat.session} within "
                f"{self.options.solve_timeout_s:g} s"
            )

    def _look_again_at(self, seat: RunningSession) -> float | None:
        if (tick := seat.next_tick()) is not None:
            return tick
        if seat.phase is None or seat.awaits_user():
            return self.clock.now() + LOOK_EVERY_S
        # Else its tick came after the schedule was made.
        return None if seat.awaits_performer else self.clock.now()

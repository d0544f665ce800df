"""All sessions' way through the pair: does what the schedule says, one step at a time."""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from shared.chunking import ChunkMode
from shared.clock import Clock, UnitClock, Wakeup
from shared.errors import LinkTimeout
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.models.layout import KVBlock
from shared.slices import Flags, SliceHeader
from thinker.engine.running_session import Action, Pacing, PendingUnit, RunningSession
from thinker.engine.scheduler import Phases, next_task
from thinker.engine.slice_sender import SliceSender
from thinker.engine.timings import PACK, Timings
from thinker.report import UnitCounts
from thinker.units import AgentUnit

log = logging.getLogger(__name__)

MAX_BEHIND_UNITS = 4  # a loop that is further behind gives up units instead of chasing them
LOOK_EVERY_S = 0.004  # while a unit of the user, or the last buffer of an ended session, is awaited

Sessions = Sequence[RunningSession]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineOptions:
    """How sessions are run.

    `slots`: sessions that there is room for, in `phases` phases of the unit. `pacing`: when a solved unit is
    decoded. `chunk_mode`: how KV slices travel. A Performer that takes longer than `solve_timeout_s` for a
    unit is taken for stuck. `checked`: slices carry a checksum.
    """

    slots: int = 1
    phases: int = 1
    pacing: Pacing = Pacing.EAGER
    chunk_mode: ChunkMode = ChunkMode.AUTO
    solve_timeout_s: float = 10.0
    checked: bool = False

    @property
    def room(self) -> int:
        """Sessions that a phase takes."""
        return -(-self.slots // self.phases)


@dataclass(kw_only=True)
class Pipeline:
    """The sessions that run. `step` does one thing and returns; the caller owns thread and loop."""

    family: Family
    link: LinkEnd
    memory: Any
    clock: Clock
    wakeup: Wakeup
    options: PipelineOptions
    timings: Timings
    counts: UnitCounts
    on_latents: Callable[[RunningSession, int, Tensor], None] | None = None  # for tests and recordings
    sessions: list[RunningSession] = field(init=False, default_factory=list)
    _sender: SliceSender = field(init=False)
    _phases: Phases = field(init=False)
    _returned: list[tuple[SliceHeader, Tensor]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        options = self.options
        self._sender = SliceSender(
            self.family, self.link.sender, chunk_mode=options.chunk_mode, checked=options.checked,
            within_s=options.solve_timeout_s,
        )  # fmt: skip
        self._phases = Phases(options.phases, self.family.media.unit_ms / 1000, options.room)

    def unit_clock(self) -> UnitClock:
        """Ticks for a session of this pipeline."""
        return UnitClock(self.family.media.unit_ms / 1000, self.clock)

    def open(self, session: RunningSession) -> None:
        """Begin a session on both sides, in a free slot; its ticks begin with the user's first unit."""
        taken = {each.slot for each in self.sessions}
        session.slot = next(slot for slot in itertools.count() if slot not in taken)
        assert session.slot < self.options.slots, "no slot is free"
        session.pacing = self.options.pacing
        session.clock.start()
        session.state = self.family.init_state(self.memory, session.slot, session.seed)
        self._sender.begin(session)
        self.sessions.append(session)
        self.sessions.sort(key=lambda each: each.slot)  # neighbours in the cache are neighbours in a batch

    def close(self, session: RunningSession) -> None:
        """End a session: both sides forget it, and its slot is free at once."""
        self.sessions.remove(session)
        self.family.end_state(session.state)  # also where the link is full or closed
        self._sender.end(session)

    def step(self) -> None:
        """Take what has come, then do the most urgent thing, or wait for the link or the next tick."""
        self.collect()
        for session in self.sessions:
            self._place(session)
        action, sessions = next_task(self.sessions)
        match action:
            case Action.ENCODE | Action.ENCODE_AHEAD:
                self._encode(sessions)
            case Action.STATE:
                self._state_pass(sessions)
            case Action.DECODE:
                self._decode(sessions)
            case Action.COMMIT | Action.COMMIT_AHEAD:
                self._commit(sessions)
            case Action.WAIT:
                self._wait()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way at the Performer."""
        return all(session.solving is None for session in self.sessions)

    def collect(self) -> None:
        """Take latents off the link; those of a batch are handed on together."""
        while (message := self.link.receiver.poll()) is not None:
            header, payload = message
            self._returned.append((header, payload.view(torch.float32).clone()))
            self.link.receiver.release()
            if not header.flags & Flags.MORE:
                batch, self._returned = self._returned, []
                self._take_back(batch)

    def _take_back(self, batch: list[tuple[SliceHeader, Tensor]]) -> None:
        by_number = {session.number: session for session in self.sessions}
        came = [
            (header, latents, by_number[header.session])
            for header, latents in batch
            if header.session in by_number  # others were closed meanwhile
        ]
        if came:
            headers, _, sessions = zip(*came, strict=True)
            self.timings.returned(headers, sessions)
        for header, latents, session in came:
            pending, session.solving = session.solving, None
            assert pending is not None, f"latents of unit {header.unit}, and nothing is being solved"
            assert header.unit == pending.unit, f"latents of unit {header.unit}, not {pending.unit}"
            if self.on_latents is not None:
                self.on_latents(session, header.unit, latents)
            self.counts.late += session.clock.behind_s(header.unit + 1) > 0
            pending.latents = latents
            session.undecoded.append(pending)
            session.uncommitted = pending

    def _place(self, session: RunningSession) -> None:
        """Give a session its phase once the user's first unit is there: from then on units come in time."""
        if session.phase is not None or session.awaits_user():
            return
        now = self.clock.now()
        taken = [other.phase for other in self.sessions if other.phase is not None]
        session.phase, first_tick = self._phases.place(now, taken)
        session.clock.start(first_tick)
        session.complete_before_tick_s = first_tick - now if self.clock.paced else 0.0

    def _encode(self, sessions: Sessions) -> None:
        for session in sessions:
            self._give_up_lost_time(session)
        pending = [
            PendingUnit(
                unit=session.unit,
                complete_at=session.clock.tick(session.unit) - session.complete_before_tick_s,
                user=session.source.take(),
            )
            for session in sessions
        ]
        with self.timings.stage("encode", sessions):
            users = [each.user for each in pending]
            tokens_BTC = self.family.encode([session.state for session in sessions], users)
        for row, (session, each) in enumerate(zip(sessions, pending, strict=True)):
            each.tokens = tokens_BTC[row : row + 1]
            session.encoded = each

    def _give_up_lost_time(self, session: RunningSession) -> None:
        behind = int(session.clock.behind_s(session.unit) / session.clock.unit_s)
        if behind > MAX_BEHIND_UNITS:
            log.warning("session %d: %d units behind, giving them up", session.number, behind)
            session.clock.skip(behind)
            self.counts.dropped += behind

    def _state_pass(self, sessions: Sessions) -> None:
        pending = _all(session.encoded for session in sessions)
        units = [each.unit for each in pending]
        with self.timings.stage("state", sessions):
            decisions = self.family.state_pass(
                [session.state for session in sessions],
                units,
                [each.user for each in pending],
                torch.cat(_all(each.tokens for each in pending)),
                self._sender.along(KVBlock.STATE, sessions, units),
            )
        sent_at = self.clock.now()
        with self.timings.stage(PACK, ()):
            self._sender.after(KVBlock.STATE, sessions, units)
        for session, each, decision in zip(sessions, pending, decisions, strict=True):
            each.decision, each.tokens = decision, None
            session.sent_at = sent_at
            session.solving, session.encoded = each, None
            session.unit += 1

    def _decode(self, sessions: Sessions) -> None:
        pending = [session.undecoded.popleft() for session in sessions]
        with self.timings.stage("decode", sessions):
            latents = _all(each.latents for each in pending)
            made = self.family.decode([session.state for session in sessions], latents)
        for session, each, media in zip(sessions, pending, made, strict=True):
            assert each.decision is not None
            self.timings.emitted(session, each.complete_at)
            self.counts.emitted += 1
            session.on_unit(
                AgentUnit(unit=each.unit, epoch=each.user.epoch, decision=each.decision, media=media)
            )

    def _commit(self, sessions: Sessions) -> None:
        pending = _all(session.uncommitted for session in sessions)
        units = [each.unit for each in pending]
        with self.timings.stage("remember", sessions):
            self.family.commit(
                [session.state for session in sessions],
                units,
                _all(each.latents for each in pending),
                self._sender.along(KVBlock.COMMIT, sessions, units),
            )
        with self.timings.stage(PACK, ()):
            self._sender.after(KVBlock.COMMIT, sessions, units)
        for session in sessions:
            session.uncommitted = None

    def _wait(self) -> None:
        """Until latents come, a session opens or closes, a tick comes or a user's unit may be there."""
        moments = [self._look_again_at(session) for session in self.sessions]
        to_come = [moment for moment in moments if moment is not None]
        if to_come:
            self.clock.wait_until(min(to_come), self.wakeup)
        elif not self.sessions:
            self.wakeup.wait(None if self.link.sender.wiped() else LOOK_EVERY_S)
        elif not self.wakeup.wait(self.options.solve_timeout_s):
            session = min(self.sessions, key=lambda each: each.sent_at)  # only latents are missing
            assert session.solving is not None
            raise LinkTimeout(
                f"the performer sent no latents of unit {session.solving.unit} of session {session.number} "
                f"within {self.options.solve_timeout_s:g} s"
            )

    def _look_again_at(self, session: RunningSession) -> float | None:
        if (tick := session.next_tick()) is not None:
            return tick
        if session.phase is None or session.awaits_user():
            return self.clock.now() + LOOK_EVERY_S
        # Else its tick came after the schedule was made.
        return None if session.solving is not None else self.clock.now()


def _all(found: Iterable[T | None]) -> list[T]:
    """What every session of a batch has by now."""
    each = list(found)
    there = [one for one in each if one is not None]
    assert len(there) == len(each), "a session takes part in a stage that it isn't ready for"
    return there

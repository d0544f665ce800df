"""One session's way through the pair: what the Thinker does next, and in which order (design section 3).

    tick k    encode u_k, state pass k, send its slice
    y_k here  decode, emit; then remember y_k and send that slice, in the idle time before tick k + 1

Tick 0 is the moment at which the user's first unit is there, so that the others come just before their ticks.
A unit that is due goes first, then what the user waits for, then the rest.
"""

from __future__ import annotations

import enum
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shared.clock import UnitClock, Wakeup
from shared.errors import LinkTimeout
from shared.links.base import LinkEnd
from shared.models.family import Family, Observation, Said
from shared.models.layout import Block
from shared.slices import Flags, Kind, SliceHeader, describe
from thinker.timings import Timings
from thinker.units import AgentUnit, UserSource

log = logging.getLogger(__name__)

SEND_WITHIN_S = 5.0
MAX_BEHIND_UNITS = 4  # a loop that is further behind gives up units instead of chasing them
FIRST_WITHIN_S = 0.5  # the user's first unit makes tick 0; who sends nothing is talked to all the same
LATE_WITHIN_S = 0.04  # a unit of the user that comes so long after its tick leaves no hole
LOOK_EVERY_S = 0.004  # while one is awaited


class Pacing(enum.Enum):
    """When a solved unit is decoded: as soon as it is there, or at the next tick as in the paper."""

    EAGER = "eager"
    BOUNDARY = "boundary"


class Action(enum.Enum):
    """What the loop can do next."""

    ENCODE = enum.auto()
    STATE = enum.auto()
    DECODE = enum.auto()
    REMEMBER = enum.auto()
    WAIT = enum.auto()


@dataclass(slots=True)
class Counts:
    """Units of all sessions since the Thinker started."""

    emitted: int = 0
    late: int = 0
    dropped: int = 0


@dataclass(slots=True)
class _Encoded:
    user: Observation
    tokens: Tensor
    epoch: int
    due_at: float


@dataclass(slots=True)
class _Solved:
    unit: int
    latents: Tensor


@dataclass(slots=True)
class _Unit:
    """What is known of a unit between its state pass and its emission."""

    epoch: int
    due_at: float
    said: Said
    sent_ns: int


@dataclass(kw_only=True)
class Pipeline:
    """A session. `step` does one thing and returns; the caller owns thread and loop."""

    family: Family[Any]
    link: LinkEnd
    clock: UnitClock
    wakeup: Wakeup
    source: UserSource
    on_unit: Callable[[AgentUnit], None]
    session: int
    seed: int
    pacing: Pacing
    timings: Timings
    counts: Counts
    flat_out: bool = False  # every tick is due at once (benches): no unit can be late or given up
    checked: bool = False
    latents_within_s: float = 10.0  # a Performer that takes longer is taken for stuck
    on_latents: Callable[[int, Tensor], None] | None = None  # for tests and recordings
    state: Any = field(init=False)
    unit: int = field(init=False, default=0)  # the next state pass
    _encoded: _Encoded | None = field(init=False, default=None)
    _solving: int | None = field(init=False, default=None)
    _undecoded: deque[_Solved] = field(init=False, default_factory=deque)
    _unremembered: _Solved | None = field(init=False, default=None)
    _units: dict[int, _Unit] = field(init=False, default_factory=dict)

    def start(self) -> None:
        """Allocate the session on both sides and make this moment its first tick."""
        self.state = self.family.init_state(self.seed)
        self._send(Kind.RESET, 0, 0, self._fill_seed)
        self.clock.start()

    def finish(self) -> None:
        """Let the Performer forget the session; what it still solves is dropped by its number."""
        self._send(Kind.END, 0, self.unit, lambda _: 0)

    def step(self) -> None:
        """Take what has come, then do the most urgent thing, or wait for the link or the next tick."""
        self.collect()
        match self.next_action():
            case Action.ENCODE:
                self._encode()
            case Action.STATE:
                self._state_pass()
            case Action.DECODE:
                self._decode()
            case Action.REMEMBER:
                self._remember()
            case Action.WAIT:
                self._wait()

    def next_action(self) -> Action:
        """The order of work when several things could be done."""
        due = self._is_due()
        if due and self._solving is None:
            if self._encoded is None:
                return Action.ENCODE
            return Action.STATE if self._unremembered is None else Action.REMEMBER
        if self._undecoded and self._may_decode():
            return Action.DECODE
        if self._unremembered is not None:
            return Action.REMEMBER
        if due and self._encoded is None:
            return Action.ENCODE  # ahead of its state pass: the Performer is still at the unit before
        return Action.WAIT

    def _is_due(self) -> bool:
        return self.clock.due(self.unit) and not self._awaits_user()

    def _awaits_user(self) -> bool:
        """Whether the unit whose tick has come should be there, isn't yet, and time can be spared for it."""
        if self.flat_out or self._encoded is not None:
            return False
        within_s = FIRST_WITHIN_S if self.unit == 0 else LATE_WITHIN_S
        return self.clock.behind_s(self.unit) < within_s and self.source.lacking()

    def collect(self) -> None:
        """Take latents off the link."""
        while (message := self.link.receiver.poll()) is not None:
            returned_ns = time.monotonic_ns()
            header, payload = message
            if header.kind is Kind.LATENTS and header.session == self.session:
                self._returned(header, payload.view(torch.float32).clone(), returned_ns)
            self.link.receiver.release()

    def _returned(self, header: SliceHeader, latents: Tensor, returned_ns: int) -> None:
        assert header.unit == self._solving, f"latents of unit {header.unit}, waiting for {self._solving}"
        self._solving = None
        self.timings.exchanged(header, self._units[header.unit].sent_ns, returned_ns)
        if self.on_latents is not None:
            self.on_latents(header.unit, latents)
        if self.clock.behind_s(header.unit + 1) > 0 and not self.flat_out:
            self.counts.late += 1
        solved = _Solved(header.unit, latents)
        self._undecoded.append(solved)
        self._unremembered = solved

    @property
    def idle(self) -> bool:
        """Whether nothing is under way at the Performer."""
        return self._solving is None

    def _may_decode(self) -> bool:
        return self.pacing is Pacing.EAGER or self.clock.due(self._undecoded[0].unit + 1)

    def _encode(self) -> None:
        if self.unit == 0:
            self.clock.start()  # from here on a unit of the user is complete just when its tick comes
        if not self.flat_out:
            self._give_up_lost_time()
        # From here the unit is complete: on the clock at its tick, flat out at this moment.
        due_at = time.monotonic() if self.flat_out else self.clock.deadline(self.unit)
        user = self.source.take()
        with self.timings.stage("encode"):
            observation = Observation(
                pcm=user.pcm, frames=user.frames, texts=user.texts, interrupted=user.interrupted
            )
            tokens = self.family.encode(self.state, observation)
        self._encoded = _Encoded(observation, tokens, user.epoch, due_at)

    def _give_up_lost_time(self) -> None:
        behind = int(self.clock.behind_s(self.unit) / self.clock.unit_s)
        if behind > MAX_BEHIND_UNITS:
            log.warning("session %d: %d units behind, giving them up", self.session, behind)
            self.clock.skip(behind)
            self.counts.dropped += behind

    def _state_pass(self) -> None:
        encoded, unit = self._encoded, self.unit
        assert encoded is not None
        with self.timings.stage("state"):
            said = self.family.state_pass(self.state, unit, encoded.user, encoded.tokens)
        sent_ns = self._send_slice(Block.STATE, encoded.epoch, unit)
        self._units[unit] = _Unit(encoded.epoch, encoded.due_at, said, sent_ns)
        self._solving, self._encoded = unit, None
        self.unit += 1

    def _decode(self) -> None:
        solved = self._undecoded.popleft()
        about = self._units.pop(solved.unit)
        with self.timings.stage("decode"):
            emission = self.family.decode(self.state, solved.latents)
        self.timings.emitted(time.monotonic() - about.due_at)
        self.counts.emitted += 1
        self.on_unit(
            AgentUnit(
                unit=solved.unit, epoch=about.epoch, pcm=emission.pcm, frames=emission.frames,
                text=about.said.text, speaking=about.said.speaking, refused=about.said.refused,
                heard=about.said.heard,
            )
        )  # fmt: skip

    def _remember(self) -> None:
        solved = self._unremembered
        assert solved is not None
        with self.timings.stage("remember"):
            self.family.remember(self.state, solved.unit, solved.latents)
        self._send_slice(Block.REMEMBER, 0, solved.unit)
        self._unremembered = None

    def _wait(self) -> None:
        if not self.clock.due(self.unit):
            self.clock.wait(self.unit, self.wakeup)
        elif self._encoded is None:
            self.clock.clock.wait_until(self.clock.clock.now() + LOOK_EVERY_S, self.wakeup)
        elif not self.wakeup.wait(self.latents_within_s):  # only latents are missing
            raise LinkTimeout(
                f"the performer sent no latents of unit {self._solving} within {self.latents_within_s:g} s"
            )

    def _fill_seed(self, out: Tensor) -> int:
        out[:8].view(torch.int64).fill_(self.seed)
        return 8

    def _send_slice(self, block: Block, epoch: int, unit: int) -> int:
        began_ns = time.monotonic_ns()
        self._send(Kind[block.name], epoch, unit, lambda out: self.family.pack(self.state, block, unit, out))
        self.timings.packed((time.monotonic_ns() - began_ns) / 1e9)
        return began_ns

    def _send(self, kind: Kind, epoch: int, unit: int, fill: Callable[[Tensor], int]) -> None:
        size = fill(self.link.sender.reserve(SEND_WITHIN_S, describe(kind, unit)))
        header = SliceHeader(
            kind=kind, session=self.session, epoch=epoch, unit=unit, payload_bytes=size,
            flags=Flags.CHECKED if self.checked else Flags.NONE,
        )  # fmt: skip
        self.link.sender.commit(header)

"""When the units of a user are taken: at ticks that begin with the first of them, a little later if late."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from performer.loop import perform
from shared.clock import Clock, ManualClock, UnpacedClock
from shared.links.base import LinkEnd, LinkShape
from shared.links.loopback import loopback_pair
from shared.media import Media
from shared.models.family import AgentMedia, StepDecision, UserUnit
from shared.models.layout import KVBlock
from thinker.engine.pipeline import LOOK_EVERY_S, Pipeline, PipelineOptions
from thinker.engine.running_session import FIRST_WITHIN_S, LATE_WITHIN_S, RunningSession
from thinker.engine.timings import Timings
from thinker.report import UnitCounts
from thinker.units import AgentUnit, UserSource

UNIT_S = 0.16


MEDIA = Media(
    unit_ms=160, fps=25, frames_per_unit=4, sample_rate=16_000, height=8, width=8, input_rate=16_000,
    input_height=8, input_width=8,
)  # fmt: skip


class Counter:
    """A model that knows the numbers of the units and nothing else; notes what was done together."""

    media = MEDIA
    layers = 2

    def __init__(self) -> None:
        self.batches: list[tuple[str, tuple[int, ...]]] = []
        self.ended: list[int] = []

    def slice_bytes(self, block: KVBlock) -> int:
        return 4

    def allocate(self, sessions: int) -> None:
        return None

    def init_state(self, memory: None, slot: int, seed: int) -> int:
        return slot

    def end_state(self, state: int) -> None:
        self.ended.append(state)

    def encode(self, states: list[int], users: list[UserUnit]) -> Tensor:
        self.batches.append(("encode", tuple(states)))
        return torch.zeros(len(states), 1)

    def state_pass(
        self, states: list[int], units: list[int], users: list[UserUnit], tokens: Tensor, on_layer: Any
    ) -> list[StepDecision]:
        self.batches.append(("state", tuple(states)))
        return [StepDecision(text="", speaking=False, heard=f"unit {unit}") for unit in units]

    def commit(self, states: list[int], units: list[int], latents: list[Tensor], on_layer: Any) -> None:
        self.batches.append(("remember", tuple(states)))

    def decode(self, states: list[int], latents: list[Tensor]) -> list[AgentMedia]:
        self.batches.append(("decode", tuple(states)))
        frames = np.zeros((4, 8, 8, 3), np.uint8)
        return [AgentMedia(pcm=each.numpy().astype(np.int16), frames=frames) for each in latents]

    def export_kv(self, state: int, block: KVBlock, unit: int, out: Tensor, first: int) -> None:
        assert len(out) == 4

    def import_kv(self, state: int, block: KVBlock, unit: int, payload: Tensor, first: int) -> None:
        pass

    def solve(self, states: list[int], units: list[int]) -> list[Tensor]:
        self.batches.append(("solve", tuple(states)))
        return [torch.tensor([float(unit)]) for unit in units]


class User:
    """Their unit k is there at `at(k)` seconds; notes when it was taken."""

    def __init__(self, clock: ManualClock, at: Callable[[int], float]) -> None:
        self._clock = clock
        self._at = at
        self.taken: list[float] = []

    def lacking(self) -> bool:
        return self._clock.now() < self._at(len(self.taken))

    def take(self) -> UserUnit:
        self.taken.append(self._clock.now())
        nothing = np.zeros(1, np.float32), np.zeros((4, 8, 8, 3), np.uint8)
        return UserUnit(pcm=nothing[0], frames=nothing[1], texts=())


SLOTS = 4


@pytest.fixture
def model() -> Counter:
    return Counter()


@pytest.fixture
def link(model: Counter) -> Iterator[LinkEnd]:
    """The Thinker's end of a link at whose other end a Performer works."""
    thinker, performer = loopback_pair(LinkShape(to_peer=64, from_peer=64, depth=2 * SLOTS + 2))
    work = threading.Thread(
        target=perform, args=(model, performer), kwargs={"slots": SLOTS, "stopping": lambda: False}
    )
    work.start()
    with performer:
        with thinker:
            yield thinker
        work.join()


def pipeline_over(link: LinkEnd, model: Counter, clock: Clock, **options: Any) -> Pipeline:
    family: Any = model
    return Pipeline(
        family=family, link=link, memory=None, clock=clock, wakeup=link.receiver,
        options=PipelineOptions(**options), timings=Timings(clock, one_host=True), counts=UnitCounts(),
    )  # fmt: skip


def opened(
    pipeline: Pipeline, number: int, source: UserSource, on_unit: Callable[[AgentUnit], None]
) -> RunningSession:
    session = RunningSession(
        number=number, seed=1, source=source, on_unit=on_unit, clock=pipeline.unit_clock()
    )
    pipeline.open(session)
    return session


def talk(link: LinkEnd, at: Callable[[int], float], units: int = 6) -> tuple[list[float], list[AgentUnit]]:
    clock = ManualClock()
    user, emitted = User(clock, at), []
    pipeline = pipeline_over(link, Counter(), clock)
    opened(pipeline, 1, user, emitted.append)
    while len(emitted) < units:
        pipeline.step()
    return user.taken[:units], emitted


def test_ticks_begin_with_the_users_first_unit(link: LinkEnd) -> None:
    taken, emitted = talk(link, lambda unit: 0.21 + unit * UNIT_S - 0.005 * (unit > 0))
    assert 0.21 <= taken[0] <= 0.21 + LOOK_EVERY_S
    assert np.diff(taken) == pytest.approx(5 * [UNIT_S])
    assert [unit.decision.heard for unit in emitted] == [f"unit {number}" for number in range(6)]


def test_who_sends_nothing_is_talked_to_all_the_same(link: LinkEnd) -> None:
    taken, _ = talk(link, lambda unit: float("inf") if unit == 0 else 0.0)
    assert taken[0] == pytest.approx(FIRST_WITHIN_S, abs=LOOK_EVERY_S)
    assert np.diff(taken) == pytest.approx(5 * [UNIT_S])


def test_a_late_unit_is_waited_for_and_moves_no_later_tick(link: LinkEnd) -> None:
    late = {2: 0.02, 4: 1.0}
    taken, _ = talk(link, lambda unit: unit * UNIT_S + late.get(unit, 0.0))
    delays = np.array(taken) - UNIT_S * np.arange(6)
    assert delays[[0, 1, 3, 5]] == pytest.approx(0.0)
    assert 0.02 <= delays[2] <= 0.02 + LOOK_EVERY_S
    assert LATE_WITHIN_S <= delays[4] <= LATE_WITHIN_S + LOOK_EVERY_S


class Present:
    """A user whose units are always there."""

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        nothing = np.zeros(1, np.float32), np.zeros((4, 8, 8, 3), np.uint8)
        return UserUnit(pcm=nothing[0], frames=nothing[1], texts=())


def opened_all(pipeline: Pipeline, sessions: int) -> tuple[list[RunningSession], list[list[int]]]:
    """So many sessions, and the units that each of them got."""
    got: list[list[int]] = [[] for _ in range(sessions)]
    found = [
        opened(pipeline, number, Present(), lambda unit, own=own: own.append(unit.unit))
        for number, own in enumerate(got, start=1)
    ]
    return found, got


@pytest.mark.parametrize("phases", [1, 2, 4])
@pytest.mark.parametrize("make_clock", [UnpacedClock, ManualClock])
def test_every_session_gets_every_unit_in_order(
    link: LinkEnd, model: Counter, phases: int, make_clock: Callable[[], Clock]
) -> None:
    pipeline = pipeline_over(link, model, make_clock(), slots=SLOTS, phases=phases)
    _, got = opened_all(pipeline, SLOTS)
    while min(map(len, got)) < 8:
        pipeline.step()
    assert all(units == list(range(len(units))) for units in got)
    assert max(map(len, got)) - min(map(len, got)) <= 1


def test_the_sessions_of_a_phase_go_together(link: LinkEnd, model: Counter) -> None:
    pipeline = pipeline_over(link, model, UnpacedClock(), slots=SLOTS, phases=2)
    sessions, got = opened_all(pipeline, SLOTS)
    while min(map(len, got)) < 4:
        pipeline.step()
    phases = {tuple(session.slot for session in sessions if session.phase == phase) for phase in range(2)}
    assert {len(phase) for phase in phases} == {2}
    for stage in ("encode", "state", "solve", "decode", "remember"):
        assert {slots for name, slots in model.batches if name == stage} == phases


def test_who_joins_or_leaves_takes_nothing_from_the_others(link: LinkEnd, model: Counter) -> None:
    clock = ManualClock()
    pipeline = pipeline_over(link, model, clock, slots=SLOTS, phases=1)
    (first,), (got,) = opened_all(pipeline, 1)
    others: list[RunningSession] = []
    while len(got) < 40:
        pipeline.step()
        if len(got) % 8 == 3 and len(others) < SLOTS - 1:
            number = 10 + len(got) + len(others)
            others.append(opened(pipeline, number, Present(), lambda _: None))
        if len(got) % 8 == 7 and others:
            pipeline.close(others.pop(0))
    assert got == list(range(40))
    assert pipeline.counts.dropped == 0
    assert first.slot == 0


def test_a_session_that_is_closed_is_forgotten(link: LinkEnd, model: Counter) -> None:
    pipeline = pipeline_over(link, model, UnpacedClock(), slots=2, phases=1)
    sessions, _ = opened_all(pipeline, 2)
    pipeline.close(sessions[1])
    assert model.ended[0] == 1, "at its end, not when another takes its slot"
    assert pipeline.sessions == sessions[:1]


def test_a_slot_is_free_as_soon_as_its_session_is_closed(link: LinkEnd, model: Counter) -> None:
    pipeline = pipeline_over(link, model, UnpacedClock(), slots=2, phases=1)
    sessions, _ = opened_all(pipeline, 2)
    while pipeline.idle:
        pipeline.step()
    pipeline.close(sessions[0])  # while the Performer works for it
    got: list[int] = []
    new = opened(pipeline, 9, Present(), lambda unit: got.append(unit.unit))
    assert new.slot == sessions[0].slot
    while len(got) < 5:
        pipeline.step()
    assert got == list(range(5))


def test_no_tick_is_missed_while_others_are_awaited(link: LinkEnd, model: Counter) -> None:
    """Whoever looks again and again for a unit must not do so before its tick, and sleep over it."""
    clock = ManualClock()
    pipeline = pipeline_over(link, model, clock, slots=3, phases=3)
    users = [User(clock, lambda unit, after=after: unit * UNIT_S + after) for after in (0.0, UNIT_S / 4)]
    for number, user in enumerate(users, start=1):
        opened(pipeline, number, user, lambda _: None)
    while len(users[1].taken) < 8:
        pipeline.step()
    assert np.array(users[0].taken[:8]) == pytest.approx(UNIT_S * np.arange(8))
    assert np.array(users[1].taken[1:8]) == pytest.approx(UNIT_S * (np.arange(1, 8) + 1 / 3))


def test_one_late_user_holds_up_nobody(link: LinkEnd, model: Counter) -> None:
    clock = ManualClock()
    pipeline = pipeline_over(link, model, clock, slots=2, phases=1)
    late = User(clock, lambda unit: unit * UNIT_S + (0.03 if unit >= 3 else 0.0))
    on_time = User(clock, lambda unit: unit * UNIT_S)
    got: list[int] = []
    for number, user in enumerate((on_time, late), start=1):
        opened(pipeline, number, user, lambda unit: got.append(unit.unit))
    while len(late.taken) < 8:
        pipeline.step()
    assert np.array(on_time.taken[:8]) == pytest.approx(UNIT_S * np.arange(8))
    assert np.array(late.taken[3:8]) - UNIT_S * np.arange(3, 8) == pytest.approx(0.03, abs=LOOK_EVERY_S)


class CreepingClock(ManualClock):
    """Time goes on between any two looks at it, so that a tick can come at every point of a step."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = np.random.default_rng(0)

    def now(self) -> float:
        self.advance(self._steps.uniform(0, 0.04))
        return super().now()


@pytest.mark.parametrize("sessions", [1, 3])
def test_a_tick_that_comes_while_the_next_step_is_chosen_is_not_slept_through(
    link: LinkEnd, model: Counter, sessions: int
) -> None:
    pipeline = pipeline_over(link, model, CreepingClock(), slots=SLOTS, phases=2, solve_timeout_s=2.0)
    _, got = opened_all(pipeline, sessions)
    while min(map(len, got)) < 300:
        pipeline.step()
    assert all(units == list(range(len(units))) for units in got)

"""When the units of a user are taken: at ticks that begin with the first of them, a little later if late."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from performer.loop import perform
from shared.clock import ManualClock, UnitClock
from shared.links.base import LinkEnd, LinkShape
from shared.links.loopback import loopback_pair
from shared.models.family import Emission, Observation, Said
from shared.models.layout import Block
from thinker.pipeline import FIRST_WITHIN_S, LATE_WITHIN_S, LOOK_EVERY_S, Counts, Pacing, Pipeline
from thinker.timings import Timings
from thinker.units import AgentUnit, UserUnit

UNIT_S = 0.16


class Counter:
    """A model that knows the number of the unit and nothing else."""

    def init_state(self, seed: int) -> int:
        return seed

    def encode(self, state: int, user: Observation) -> Tensor:
        return torch.zeros(1)

    def state_pass(self, state: int, unit: int, user: Observation, tokens: Tensor) -> Said:
        return Said(text="", speaking=False, heard=f"unit {unit}")

    def remember(self, state: int, unit: int, latents: Tensor) -> None:
        pass

    def decode(self, state: int, latents: Tensor) -> Emission:
        return Emission(pcm=latents.numpy().astype(np.int16), frames=np.zeros((4, 8, 8, 3), np.uint8))

    def pack(self, state: int, block: Block, unit: int, out: Tensor) -> int:
        return 0

    def append(self, state: int, block: Block, unit: int, payload: Tensor) -> None:
        pass

    def solve(self, state: int, unit: int) -> Tensor:
        return torch.tensor([float(unit)])


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
        return UserUnit(pcm=nothing[0], frames=nothing[1], texts=(), interrupted=False, epoch=0)


@pytest.fixture
def link() -> Iterator[LinkEnd]:
    """The Thinker's end of a link at whose other end a Performer works."""
    thinker, performer = loopback_pair(LinkShape(slice_bytes=64, latent_bytes=64, depth=4))
    model: Any = Counter()
    work = threading.Thread(target=perform, args=(model, performer), kwargs={"stopping": lambda: False})
    work.start()
    with performer:
        with thinker:
            yield thinker
        work.join()


def talk(link: LinkEnd, at: Callable[[int], float], units: int = 6) -> tuple[list[float], list[AgentUnit]]:
    clock = ManualClock()
    user, emitted, family = User(clock, at), [], Counter()
    pipeline = Pipeline(
        family=family, link=link, clock=UnitClock(UNIT_S, clock), wakeup=link.receiver, source=user,  # type: ignore[arg-type]
        on_unit=emitted.append, session=1, seed=1, pacing=Pacing.EAGER, timings=Timings(one_host=True),
        counts=Counts(),
    )  # fmt: skip
    pipeline.start()
    while len(emitted) < units:
        pipeline.step()
    return user.taken[:units], emitted


def test_ticks_begin_with_the_users_first_unit(link: LinkEnd) -> None:
    taken, emitted = talk(link, lambda unit: 0.21 + unit * UNIT_S - 0.005 * (unit > 0))
    assert 0.21 <= taken[0] <= 0.21 + LOOK_EVERY_S
    assert np.diff(taken) == pytest.approx(5 * [UNIT_S])
    assert [unit.heard for unit in emitted] == [f"unit {number}" for number in range(6)]


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

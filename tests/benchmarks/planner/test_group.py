"""The simulated Thinker chooses as the real one does."""

import itertools
from collections import deque

import pytest
import torch
from thinker.engine.schedule import next_task

from benchmarks.planner.group import Device, Group
from benchmarks.planner.group import Solved as SimulatedSolved
from shared.clock import ManualClock, UnitClock
from shared.models.family import UserUnit
from thinker.engine.running_session import Action, Encoded, Pacing, RunningSession, Solved

STAGES = {
    Action.ENCODE: (0, "encode"),
    Action.COMMIT: (0, "remember"),
    Action.STATE: (0, "state"),
    Action.DECODE: (1, "decode"),
    Action.COMMIT_AHEAD: (2, "remember"),
    Action.ENCODE_AHEAD: (3, "encode"),
    Action.WAIT: None,
}
UNIT_MS = 160.0


class Ready:
    """A user whose units are always there."""

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        raise NotImplementedError


def simulated(
    *, encoded: bool, solving: bool, unremembered: bool, undecoded: int, performer_remembers: bool
) -> Group:
    device = Device("thinker")
    group = Group(
        ms={}, sessions=1, first_tick=UNIT_MS, thinker=device, performer=device, decoder=device,
        unpaced=False, encoded=encoded, solving=solving, unremembered=unremembered,
        remembers=not performer_remembers,
    )  # fmt: skip
    group.undecoded = deque(SimulatedSolved(0.0, False) for _ in range(undecoded))
    return group


def real(
    clock: ManualClock,
    *,
    encoded: bool,
    solving: bool,
    unremembered: bool,
    undecoded: int,
    performer_remembers: bool,
) -> RunningSession:
    solved = Solved(unit=0, latents=torch.empty(0))
    user = UserUnit(pcm=torch.empty(0).numpy(), frames=torch.empty(0, dtype=torch.uint8).numpy())
    return RunningSession(
        session=1, slot=0, source=Ready(), on_unit=lambda _: None, clock=UnitClock(UNIT_MS / 1e3, clock),
        pacing=Pacing.EAGER, state=None, remembers=not performer_remembers, phase=0, unit=1,
        encoded=Encoded(user=user, tokens=torch.empty(0), complete_at=0.0) if encoded else None,
        solving=0 if solving else None, undecoded=deque([solved] * undecoded),
        unremembered=solved if unremembered else None,
    )  # fmt: skip


@pytest.mark.parametrize("now_ms", [0.0, 159.0, 160.0, 200.0])
def test_a_group_wants_what_a_seat_wants(now_ms: float) -> None:
    names = ("encoded", "solving", "unremembered", "undecoded", "performer_remembers")
    for values in itertools.product((False, True), (False, True), (False, True), range(3), (False, True)):
        flags = dict(zip(names, values, strict=True))
        clock = ManualClock()
        seat = real(clock, **flags)  # type: ignore[arg-type]
        clock.advance(now_ms / 1e3)
        action, _ = next_task([seat])
        assert simulated(**flags).next_stage(now_ms) == STAGES[action], flags  # type: ignore[arg-type]

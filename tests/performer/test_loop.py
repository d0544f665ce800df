"""What the Performer keeps of a session, and for how long."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from performer.loop import Performer
from shared.links.base import LinkEnd, LinkShape
from shared.links.loopback import loopback_pair
from shared.slices import Flags, Kind, SliceHeader

PATIENCE_S = 10.0


class Slots:
    """A model that knows which slots are in use, and what it was asked to solve."""

    def __init__(self) -> None:
        self.used: set[int] = set()
        self.solved: list[list[int]] = []

    def allocate(self, sessions: int) -> None:
        return None

    def init_state(self, memory: None, slot: int, seed: int) -> int:
        self.used.add(slot)
        return slot

    def end_state(self, state: int) -> None:
        self.used.remove(state)

    def import_kv(self, state: int, block: Any, unit: int, payload: Tensor, first: int = 0) -> None:
        pass

    def solve(self, states: list[int], units: list[int]) -> list[Tensor]:
        self.solved.append(states)
        return [torch.zeros(1) for _ in states]


class Pair:
    def __init__(self, thinker: LinkEnd, performer_end: LinkEnd) -> None:
        self.thinker = thinker
        self.model: Any = Slots()
        self.performer = Performer(self.model, performer_end, slots=4, checked=False)

    def send(self, kind: Kind, session: int, *, slot: int = 0, flags: Flags = Flags.NONE) -> None:
        payload = torch.tensor([7, slot]).view(torch.uint8) if kind is Kind.RESET else torch.zeros(4)
        room = self.thinker.sender.reserve(PATIENCE_S)
        room[: payload.nbytes] = payload.view(torch.uint8)
        header = SliceHeader(kind=kind, session=session, unit=0, payload_bytes=payload.nbytes, flags=flags)
        self.thinker.sender.send(header)
        self.performer.step()


@pytest.fixture
def pair() -> Iterator[Pair]:
    thinker, performer = loopback_pair(LinkShape(to_peer=64, from_peer=64, depth=8))
    with thinker, performer:
        yield Pair(thinker, performer)


def test_a_session_that_ends_is_forgotten(pair: Pair) -> None:
    pair.send(Kind.RESET, 1, slot=2)
    pair.send(Kind.RESET, 2, slot=3)
    assert pair.model.used == {2, 3}
    pair.send(Kind.END, 1)
    assert pair.model.used == {3}
    assert set(pair.performer.sessions) == {2}


def test_a_session_that_ends_before_its_batch_is_complete_is_not_solved(pair: Pair) -> None:
    for session in (1, 2):
        pair.send(Kind.RESET, session, slot=session)
    pair.send(Kind.STATE, 1, flags=Flags.MORE)
    pair.send(Kind.END, 1)
    pair.send(Kind.STATE, 2)
    assert pair.model.solved == [[2]]

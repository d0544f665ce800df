"""How the slices of a batch are cut into messages, and which of them completes it."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from shared.chunking import ChunkMode
from shared.clock import ManualClock, UnitClock
from shared.models.layout import KVBlock
from shared.slices import Flags, Kind, SliceHeader
from thinker.engine.running_session import RunningSession
from thinker.engine.slice_sender import SliceSender

LAYER_BYTES = {KVBlock.STATE: 6, KVBlock.COMMIT: 4}
BLOCKS = pytest.mark.parametrize("block", list(KVBlock))


class Numbers:
    """A family whose slices are the numbers of session, unit and layer, over and over."""

    def __init__(self, layers: int, scale: int = 1) -> None:
        self.layers = layers
        self._scale = scale

    def slice_bytes(self, block: KVBlock) -> int:
        return self.layers * LAYER_BYTES[block] * self._scale

    def export_kv(self, state: int, block: KVBlock, unit: int, out: Tensor, first: int = 0) -> None:
        size = LAYER_BYTES[block] * self._scale
        for row in range(len(out) // size):
            out[row * size : (row + 1) * size] = state * 100 + unit * 10 + first + row


class Sent:
    """A link's sender that keeps what is sent."""

    def __init__(self) -> None:
        self.max_bytes = 1 << 23
        self.messages: list[tuple[Any, list[int]]] = []
        self._room = torch.zeros(self.max_bytes, dtype=torch.uint8)

    def reserve(self, timeout_s: float, what: str = "") -> Tensor:
        return self._room

    def send(self, header: SliceHeader) -> None:
        self.messages.append((header, self._room[: header.payload_bytes].tolist()))

    def wipe(self) -> None:
        self.messages.append((None, []))

    def close(self) -> None:
        raise AssertionError("not the sender's to close")


def session_of(number: int, *, slot: int = 0, seed: int = 0) -> RunningSession:
    nobody: Any = None
    return RunningSession(
        number=number, slot=slot, seed=seed, source=nobody, on_unit=lambda _: None,
        clock=UnitClock(0.16, ManualClock()), state=number,
    )  # fmt: skip


def sent_by(family: Numbers, chunk_mode: ChunkMode, block: KVBlock, units: dict[int, int]) -> Sent:
    """What is sent of a pass that writes the layers one after the other."""
    model: Any = family
    link = Sent()
    sender = SliceSender(model, link, chunk_mode=chunk_mode, within_s=1.0)
    sessions = [session_of(number) for number in units]
    on_layer = sender.along(block, sessions, list(units.values()))
    for layer in range(family.layers if on_layer else 0):
        assert on_layer is not None
        on_layer(layer)
    sender.after(block, sessions, list(units.values()))
    return link


def payload(block: KVBlock, session: int, unit: int, layers: Sequence[int], scale: int = 1) -> list[int]:
    size = LAYER_BYTES[block] * scale
    return [session * 100 + unit * 10 + layer for layer in layers for _ in range(size)]


@BLOCKS
def test_small_slices_travel_whole_one_after_the_other(block: KVBlock) -> None:
    link = sent_by(Numbers(3), ChunkMode.AUTO, block, {1: 5, 2: 0})
    assert [
        (header.kind, header.session, header.unit, header.layer, header.flags) for header, _ in link.messages
    ] == [
        (Kind[block.name], 1, 5, 0, Flags.MORE),
        (Kind[block.name], 2, 0, 0, Flags.NONE),
    ]
    assert [numbers for _, numbers in link.messages] == [
        payload(block, 1, 5, range(3)), payload(block, 2, 0, range(3)),
    ]  # fmt: skip


@BLOCKS
def test_layers_travel_one_by_one_when_told_to(block: KVBlock) -> None:
    link = sent_by(Numbers(2), ChunkMode.LAYERWISE, block, {1: 5, 2: 0})
    assert [(header.session, header.layer, header.flags) for header, _ in link.messages] == [
        (1, 0, Flags.MORE), (2, 0, Flags.MORE), (1, 1, Flags.MORE), (2, 1, Flags.NONE),
    ]  # fmt: skip
    assert [numbers for _, numbers in link.messages] == [
        payload(block, 1, 5, [0]), payload(block, 2, 0, [0]), payload(block, 1, 5, [1]),
        payload(block, 2, 0, [1]),
    ]  # fmt: skip


@BLOCKS
def test_large_slices_travel_in_pieces_of_a_megabyte_and_a_remainder(block: KVBlock) -> None:
    scale = 100_000  # layers of 0.6 and 0.4 MB: two or three a piece
    link = sent_by(Numbers(8, scale), ChunkMode.LAYERWISE, block, {1: 0})
    pieces = [
        (header.layer, header.payload_bytes // (LAYER_BYTES[block] * scale)) for header, _ in link.messages
    ]
    assert (
        pieces
        == {
            KVBlock.STATE: [(0, 2), (2, 2), (4, 2), (6, 2)],
            KVBlock.COMMIT: [(0, 3), (3, 3), (6, 2)],
        }[block]
    )
    assert [numbers for _, numbers in link.messages] == [
        payload(block, 1, 0, range(first, first + layers), scale) for first, layers in pieces
    ]
    assert [header.flags for header, _ in link.messages] == [Flags.MORE] * (len(pieces) - 1) + [Flags.NONE]


def test_begin_and_end_name_slot_and_seed() -> None:
    model: Any = Numbers(2)
    link = Sent()
    sender = SliceSender(model, link, chunk_mode=ChunkMode.AUTO, within_s=1.0, checked=True)
    sender.begin(session_of(7, slot=3, seed=2**40))
    sender.end(session_of(7))
    (begin, numbers), (end, nothing), *wiped = link.messages
    assert (begin.kind, begin.session, begin.flags) == (Kind.RESET, 7, Flags.CHECKED)
    assert torch.tensor(numbers, dtype=torch.uint8).view(torch.int64).tolist() == [2**40, 3]
    assert (end.kind, end.session, nothing) == (Kind.END, 7, [])
    assert wiped == [(None, [])]

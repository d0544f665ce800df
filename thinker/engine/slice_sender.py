"""What the Thinker sends: a session's begin and end, and the KV slices of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shared.chunking import ChunkMode, layers_a_piece
from shared.links.base import Sender
from shared.models.family import Family, OnLayer
from shared.models.layout import KVBlock
from shared.slices import Flags, Kind, SliceHeader, describe
from thinker.engine.running_session import RunningSession


class SliceSender:
    """Cuts slices into messages.

    Args:
        family: packs them.
        sender: takes the messages.
        exchange: how slices are cut.
        within_s: how long a full link may hold a message back: it does while the Performer solves.
        checked: with a checksum, which the Performer compares.
    """

    def __init__(
        self,
        family: Family[Any, Any],
        sender: Sender,
        *,
        exchange: ChunkMode,
        within_s: float,
        checked: bool = False,
    ) -> None:
        self._family = family
        self._sender = sender
        self._within_s = within_s
        self._checked = Flags.CHECKED if checked else Flags.NONE
        self._piece = {block: layers_a_piece(family, block, exchange) for block in KVBlock}

    def begin(self, session: int, slot: int, seed: int) -> None:
        """Let the Performer make room for a session."""

        def fill(out: Tensor) -> int:
            out[:16].view(torch.int64).copy_(torch.tensor([seed, slot]))
            return 16

        self._send(Kind.RESET, session=session, unit=0, fill=fill)

    def end(self, seat: RunningSession) -> None:
        """Let it forget the session; what it still solves is dropped by its number."""
        self._send(Kind.END, session=seat.session, unit=seat.unit, fill=lambda _: 0)

    def along(self, block: KVBlock, seats: Sequence[RunningSession], units: Sequence[int]) -> OnLayer | None:
        """To be called by the pass that writes the block, where its layers travel one by one; else None."""
        piece = self._piece[block]
        if piece >= self._family.layers:
            return None

        def on_layer(layer: int) -> None:
            last = layer + 1 == self._family.layers
            if last or (layer + 1) % piece == 0:
                self._send_layers(block, seats, units, layer // piece * piece, layer + 1)

        return on_layer

    def after(
        self, block: KVBlock, seats: Sequence[RunningSession], units: Sequence[int]
    ) -> tuple[int, float]:
        """Send what the pass has not sent; returns when it began, in ns, and the seconds that it took."""
        began_ns = time.monotonic_ns()
        if self._piece[block] >= self._family.layers:
            self._send_layers(block, seats, units, 0, self._family.layers)
        return began_ns, (time.monotonic_ns() - began_ns) / 1e9

    def _send_layers(
        self, block: KVBlock, seats: Sequence[RunningSession], units: Sequence[int], first: int, end: int
    ) -> None:
        size = self._family.slice_bytes(block) // self._family.layers * (end - first)
        for row, (seat, unit) in enumerate(zip(seats, units, strict=True)):
            complete = end == self._family.layers and row + 1 == len(seats)

            def fill(out: Tensor, seat: RunningSession = seat, unit: int = unit) -> int:
                self._family.export_kv(seat.state, block, unit, out[:size], first)
                return size

            self._send(
                Kind[block.name], session=seat.session, unit=unit, fill=fill, layer=first,
                flags=Flags.NONE if complete else Flags.MORE,
                epoch=seat.encoded.user.epoch if seat.encoded is not None else 0,
            )  # fmt: skip

    def _send(
        self,
        kind: Kind,
        *,
        session: int,
        unit: int,
        fill: Callable[[Tensor], int],
        layer: int = 0,
        flags: Flags = Flags.NONE,
        epoch: int = 0,
    ) -> None:
        size = fill(self._sender.reserve(self._within_s, describe(kind, unit)))
        self._sender.send(
            SliceHeader(
                kind=kind, session=session, epoch=epoch, unit=unit, layer=layer, payload_bytes=size,
                flags=flags | self._checked,
            )
        )  # fmt: skip

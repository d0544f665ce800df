"""What the Thinker sends: a session's begin and end, and the KV slices of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from shared.chunking import ChunkMode, layers_a_piece
from shared.links.base import Sender
from shared.models.family import Family, OnLayer
from shared.models.layout import KVBlock
from shared.slices import Flags, Kind, SliceHeader, describe
from thinker.engine.running_session import RunningSession


@dataclass(eq=False)
class SliceSender:
    """Cuts slices into messages, as `chunk_mode` says.

    A full link may hold a message back for `within_s` seconds: it does while the Performer solves. `checked`
    messages have a checksum, which the Performer compares.
    """

    family: Family
    sender: Sender
    _: KW_ONLY
    chunk_mode: ChunkMode
    within_s: float
    checked: bool = False

    def __post_init__(self) -> None:
        self._piece = {block: layers_a_piece(self.family, block, self.chunk_mode) for block in KVBlock}

    def begin(self, session: RunningSession) -> None:
        """Let the Performer make room for a session."""

        def fill(out: Tensor) -> int:
            out[:16].view(torch.int64).copy_(torch.tensor([session.seed, session.slot]))
            return 16

        self._send(Kind.RESET, session, 0, fill)

    def end(self, session: RunningSession) -> None:
        """Let it forget the session, whose late latents are dropped by its number, and wipe the link."""
        self._send(Kind.END, session, session.unit, lambda _: 0)
        self.sender.wipe()

    def along(
        self, block: KVBlock, sessions: Sequence[RunningSession], units: Sequence[int]
    ) -> OnLayer | None:
        """To be called by the pass that writes the block, where its layers travel one by one; else None."""
        piece = self._piece[block]
        if piece >= self.family.layers:
            return None

        def on_layer(layer: int) -> None:
            last = layer + 1 == self.family.layers
            if last or (layer + 1) % piece == 0:
                self._send_layers(block, sessions, units, layer // piece * piece, layer + 1)

        return on_layer

    def after(self, block: KVBlock, sessions: Sequence[RunningSession], units: Sequence[int]) -> None:
        """Send what the pass has not sent."""
        if self._piece[block] >= self.family.layers:
            self._send_layers(block, sessions, units, 0, self.family.layers)

    def _send_layers(
        self, block: KVBlock, sessions: Sequence[RunningSession], units: Sequence[int], first: int, end: int
    ) -> None:
        size = self.family.slice_bytes(block) // self.family.layers * (end - first)
        for row, (session, unit) in enumerate(zip(sessions, units, strict=True)):
            complete = end == self.family.layers and row + 1 == len(sessions)

            def fill(out: Tensor, session: RunningSession = session, unit: int = unit) -> int:
                self.family.export_kv(session.state, block, unit, out[:size], first)
                return size

            flags = Flags.NONE if complete else Flags.MORE
            self._send(Kind[block.name], session, unit, fill, layer=first, flags=flags)

    def _send(
        self,
        kind: Kind,
        session: RunningSession,
        unit: int,
        fill: Callable[[Tensor], int],
        *,
        layer: int = 0,
        flags: Flags = Flags.NONE,
    ) -> None:
        size = fill(self.sender.reserve(self.within_s, describe(kind, unit)))
        self.sender.send(
            SliceHeader(
                kind=kind, session=session.number, unit=unit, layer=layer, payload_bytes=size,
                flags=flags | (Flags.CHECKED if self.checked else Flags.NONE),
            )
        )  # fmt: skip

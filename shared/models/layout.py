"""Which tokens a unit has, when each of them is, and where the cache keeps them. Nothing else knows this.

A unit is written in two blocks, in this order of time: the *state* block (what the user did, and the text
slots) and the *remember* block (what the agent then did). Each stream of tokens has a ring of its own that
holds its last `span` units, so a token's place follows from its unit alone and both processes agree on it
without a word.

Streams belong to one of two *towers*, which have weights of their own and see their own streams alone
(a mixture of transformers, arXiv 2411.04996); the rings of a tower lie side by side.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS_PER_UNIT = 4  # media time counts steps of 40 ms


class Block(enum.IntEnum):
    """The two passes that write the cache."""

    STATE = 0
    REMEMBER = 1


class Tower(enum.IntEnum):
    """Whose weights a token goes through: what the user does is listened to, the rest is the agent's own."""

    LISTENING = 0
    SPEAKING = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One row of tokens that every unit has.

    `offsets` are the media times of its tokens in steps from the start of the unit; `span` is in units.
    """

    name: str
    block: Block
    offsets: tuple[int, ...]
    span: int
    tower: Tower = Tower.SPEAKING

    def __post_init__(self) -> None:
        if self.span < 1:
            raise ValueError(f"stream {self.name}: span={self.span} units must be at least 1")

    @property
    def tokens(self) -> int:
        """Tokens a unit."""
        return len(self.offsets)

    @property
    def capacity(self) -> int:
        """Tokens that its ring holds."""
        return self.span * self.tokens


class Layout:
    """The streams of a model, their rings side by side, and `scratch` places for tokens that are not kept.

    The streams of the listening tower come first; the scratch places belong to the speaking tower.
    """

    def __init__(self, streams: tuple[Stream, ...], scratch: int) -> None:
        towers = [stream.tower for stream in streams]
        assert towers == sorted(towers), "the streams of a tower lie side by side"
        self.streams = streams
        self.scratch = scratch
        starts = [0]
        for stream in streams:
            starts.append(starts[-1] + stream.capacity)
        self.starts = tuple(starts[:-1])
        self.kept = starts[-1]
        self.capacity = self.kept + scratch
        self._listened = sum(stream.capacity for stream in streams if stream.tower is Tower.LISTENING)

    def of(self, block: Block, tower: Tower | None = None) -> tuple[Stream, ...]:
        """The streams that a block writes, in the order in which its tokens come: one tower's, or all."""
        return tuple(s for s in self.streams if s.block is block and tower in {None, s.tower})

    def tokens(self, block: Block, tower: Tower | None = None) -> int:
        """How many tokens a block has, in one tower or in all."""
        return sum(stream.tokens for stream in self.of(block, tower))

    def places(self, block: Block, unit: int, tower: Tower | None = None) -> list[slice]:
        """Where in the cache each stream of the block goes, in order: one tower's, or all."""
        return [
            slice(at := start + unit % stream.span * stream.tokens, at + stream.tokens)
            for start, stream in zip(self.starts, self.streams, strict=True)
            if stream.block is block and tower in {None, stream.tower}
        ]

    def seen_by(self, tower: Tower) -> slice:
        """The places of everything that is kept for a tower."""
        return slice(0, self._listened) if tower is Tower.LISTENING else slice(self._listened, self.kept)

    def steps(self, block: Block, unit: int, tower: Tower | None = None) -> Tensor:
        """Media times [T] of a block's tokens, in steps of 40 ms since the session began."""
        offsets = [offset for stream in self.of(block, tower) for offset in stream.offsets]
        return torch.tensor(offsets, dtype=torch.int64) + unit * STEPS_PER_UNIT

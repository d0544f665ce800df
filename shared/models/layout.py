"""Which tokens a unit has, when each of them is, and where the cache keeps them. Nothing else knows this.

A unit is written in two blocks, in this order of time: the *state* block (what the user did, and the text
slots) and the *remember* block (what the agent then did). Each stream of tokens has a ring of its own that
holds its last `span` units, so a token's place follows from its unit alone and both processes agree on it
without a word.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One row of tokens that every unit has.

    `offsets` are the media times of its tokens in steps from the start of the unit; `span` is in units.
    """

    name: str
    block: Block
    offsets: tuple[int, ...]
    span: int

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
    """The streams of a model, their rings side by side, and `scratch` places for tokens that are not kept."""

    def __init__(self, streams: tuple[Stream, ...], scratch: int) -> None:
        self.streams = streams
        self.scratch = scratch
        starts = [0]
        for stream in streams:
            starts.append(starts[-1] + stream.capacity)
        self.starts = tuple(starts[:-1])
        self.kept = starts[-1]
        self.capacity = self.kept + scratch

    def of(self, block: Block) -> tuple[Stream, ...]:
        """The streams that a block writes, in the order in which its tokens come."""
        return tuple(stream for stream in self.streams if stream.block is block)

    def tokens(self, block: Block) -> int:
        """How many tokens a block has."""
        return sum(stream.tokens for stream in self.of(block))

    def places(self, block: Block, unit: int) -> list[slice]:
        """Where in the cache each stream of the block goes, in order."""
        return [
            slice(at := start + unit % stream.span * stream.tokens, at + stream.tokens)
            for start, stream in zip(self.starts, self.streams, strict=True)
            if stream.block is block
        ]

    def steps(self, block: Block, unit: int) -> Tensor:
        """Media times [T] of a block's tokens, in steps of 40 ms since the session began."""
        offsets = [offset for stream in self.of(block) for offset in stream.offsets]
        return torch.tensor(offsets, dtype=torch.int64) + unit * STEPS_PER_UNIT

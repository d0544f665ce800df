"""Which tokens a unit has, when each of them is, and where the cache keeps them. Nothing else knows this.

A unit is written in two blocks, in this order of time: the *state* block (what the user did, and what the
agent is to say and show) and the *commit* block (what the agent then did). Each stream of tokens is kept for
its last `span` units, so a token's place follows from its unit alone and both processes agree on it.

Streams belong to one of two *towers*, which have weights of their own and see their own streams alone
(a mixture of transformers, arXiv 2411.04996). Streams of one tower and span share a *ring* that turns by
whole units; the rings of a tower lie side by side, the scratch places before those of the speaking tower:

    | listening rings | scratch | speaking rings |

Where a tower has a single ring, what it keeps is a prefix of that ring until the ring is full, so early units
cost less (`Layout.visible`).
"""

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS_PER_UNIT = 4  # media time counts steps of 40 ms
VISIBLE_LENGTHS = 16  # of a ring that fills: attention has few shapes


class KVBlock(enum.IntEnum):
    """The passes that write the cache: over the user and the agent's plan, over what the agent then did."""

    STATE = 0
    COMMIT = 1


class Tower(enum.IntEnum):
    """Which weights a token goes through: the user's tokens the listening tower's, all others the other's."""

    LISTENING = 0
    SPEAKING = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One row of tokens that every unit has.

    `offsets` are the media times of its tokens in steps from the start of the unit; `span` is in units.
    """

    name: str
    block: KVBlock
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ring:
    """Streams of one tower and one span: unit after unit, each with `tokens` of them."""

    tower: Tower
    span: int
    start: int
    tokens: int
    inside: dict[str, int]
    """Where in a unit's tokens each stream begins."""


class Layout:
    """The streams of a model, their rings side by side, and `scratch` places for tokens that are not kept."""

    def __init__(self, streams: tuple[Stream, ...], scratch: int) -> None:
        towers = [stream.tower for stream in streams]
        assert towers == sorted(towers), "the streams of a tower lie side by side"
        self.streams = streams
        self.rings: list[_Ring] = []
        at = self._lay(Tower.LISTENING, 0)
        self.scratch = slice(at, at + scratch)
        self.capacity = self._lay(Tower.SPEAKING, self.scratch.stop)
        self.longest = max(stream.span for stream in streams)

    def _lay(self, tower: Tower, at: int) -> int:
        """Lay the rings of a tower from place `at` on; returns the place behind them."""
        spans = dict.fromkeys(stream.span for stream in self.streams if stream.tower is tower)
        for span in spans:
            inside, tokens = {}, 0
            for stream in self.streams:
                if stream.tower is tower and stream.span == span:
                    inside[stream.name] = tokens
                    tokens += stream.tokens
            self.rings.append(_Ring(tower=tower, span=span, start=at, tokens=tokens, inside=inside))
            at += span * tokens
        return at

    def of(self, block: KVBlock, tower: Tower | None = None) -> tuple[Stream, ...]:
        """The streams that a block writes, in the order in which its tokens come: one tower's, or all."""
        return tuple(s for s in self.streams if s.block is block and tower in {None, s.tower})

    def tokens(self, block: KVBlock, tower: Tower | None = None) -> int:
        return sum(stream.tokens for stream in self.of(block, tower))

    def place(self, stream: Stream, unit: int) -> slice:
        """Where in the cache a stream's tokens of a unit are."""
        (ring,) = (r for r in self.rings if r.tower is stream.tower and r.span == stream.span)
        at = ring.start + unit % ring.span * ring.tokens + ring.inside[stream.name]
        return slice(at, at + stream.tokens)

    def places(self, block: KVBlock, unit: int, tower: Tower | None = None) -> list[slice]:
        """Where in the cache each stream of the block goes, in order: one tower's, or all."""
        return [self.place(stream, unit) for stream in self.of(block, tower)]

    def visible(self, tower: Tower, unit: int) -> slice:
        """The places of everything that is kept for a tower when `unit` is the newest; few different ones."""
        rings = [ring for ring in self.rings if ring.tower is tower]
        if not rings:
            return slice(0, 0)
        end = rings[-1].start + rings[-1].span * rings[-1].tokens
        if len(rings) == 1:
            part = -(-rings[0].span // VISIBLE_LENGTHS)
            units = min(rings[0].span, -(-(unit + 1) // part) * part)
            end = rings[0].start + units * rings[0].tokens
        return slice(rings[0].start, end)

    def steps(self, block: KVBlock, unit: int, tower: Tower | None = None) -> Tensor:
        """Media times [T] of a block's tokens, in steps of 40 ms since the session began."""
        offsets = [offset for stream in self.of(block, tower) for offset in stream.offsets]
        return torch.tensor(offsets, dtype=torch.int64) + unit * STEPS_PER_UNIT

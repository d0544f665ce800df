"""What training shows each token: exactly what the runtime's cache would show it, rings and spans included.

A sequence is `units` units of one tower. The *kept* tokens are those that the cache keeps, unit by unit.
The *noisy* ones are the agent's unit once more, as the solver runs them: they look at the kept tokens of the
past and at each other, and nothing ever looks at them. So the kept tokens are run first, once, and leave
their keys and values for as many passes over the noisy ones as are wanted.

Shape suffixes: R kept tokens, Q noisy tokens, T either, B batch, H heads, D head dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shared.models.layout import STEPS_PER_UNIT, KVBlock, Layout, Tower
from shared.models.transformer import Attend

Past = list[tuple[Tensor, Tensor]]
"""Keys and values [B, H, R, D] of the kept tokens, layer by layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """Media times of the tokens, and a bias on the kept keys: 0 where a query sees them, else -inf."""

    units: int
    kept_steps_R: Tensor
    noisy_steps_Q: Tensor
    kept_bias_RR: Tensor
    noisy_bias_QR: Tensor

    def to(self, device: str) -> Sequence:
        """A copy on a device."""
        return Sequence(
            units=self.units,
            kept_steps_R=self.kept_steps_R.to(device),
            noisy_steps_Q=self.noisy_steps_Q.to(device),
            kept_bias_RR=self.kept_bias_RR.to(device),
            noisy_bias_QR=self.noisy_bias_QR.to(device),
        )


def lay_sequence(layout: Layout, tower: Tower, units: int) -> Sequence:
    """Build the sequence of `units` units of a tower; each unit's streams stand in the layout's order."""
    kept = [
        (unit, stream, offset)
        for unit in range(units)
        for block in KVBlock
        for stream in layout.of(block, tower)
        for offset in stream.offsets
    ]
    noisy = [row for row in kept if row[1].block is KVBlock.COMMIT]
    unit_R = torch.tensor([unit for unit, _, _ in kept])
    span_R = torch.tensor([stream.span for _, stream, _ in kept])
    remembered_R = torch.tensor([stream.block is KVBlock.COMMIT for _, stream, _ in kept])

    def bias(unit_T: Tensor, newest_T: Tensor) -> Tensor:
        """Of queries in these units, for which this is the newest unit of the agent's that is remembered."""
        newest_TR = torch.where(remembered_R, newest_T[:, None], unit_T[:, None])
        age_TR = newest_TR - unit_R
        seen_TR = (age_TR >= 0) & (age_TR < span_R)
        return torch.zeros(seen_TR.shape).masked_fill(~seen_TR, float("-inf"))

    unit_Q = torch.tensor([unit for unit, _, _ in noisy]).long()  # none in a tower that makes nothing
    return Sequence(
        units=units,
        kept_steps_R=torch.tensor([unit * STEPS_PER_UNIT + offset for unit, _, offset in kept]),
        noisy_steps_Q=torch.tensor([unit * STEPS_PER_UNIT + offset for unit, _, offset in noisy]).long(),
        # Remembering a unit shows it to itself; until then its state and its solve see the one before.
        kept_bias_RR=bias(unit_R, torch.where(remembered_R, unit_R, unit_R - 1)),
        noisy_bias_QR=bias(unit_Q, unit_Q - 1),
    )


def writer(sequence: Sequence, past: Past) -> Attend:
    """An `attend` for the kept tokens, which also appends their keys and values to `past`.

    Written out, like `reader`'s, since the fused kernel's backward pass is slower on a CPU. Both are for as
    many key heads as query heads.
    """

    def attend(layer: int, *heads_BTHD: Tensor) -> Tensor:
        assert layer == len(past)
        q, k, v = (x.transpose(1, 2) for x in heads_BTHD)
        past.append((k, v))
        q = q * q.shape[-1] ** -0.5
        gathered: Tensor = (q @ k.transpose(2, 3) + sequence.kept_bias_RR.to(q.dtype)).softmax(-1) @ v
        return gathered.transpose(1, 2)

    return attend


def reader(sequence: Sequence, past: Past) -> Attend:
    """An `attend` for the noisy tokens: each sees its past, and the noisy tokens of its own unit."""

    def attend(layer: int, *heads_BTHD: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in heads_BTHD)
        keys, values = past[layer]
        q = q * q.shape[-1] ** -0.5
        own_q, own_k, own_v = (x.view(*x.shape[:2], sequence.units, -1, x.shape[-1]) for x in (q, k, v))
        own = (own_q @ own_k.transpose(3, 4)).flatten(2, 3)
        score = torch.cat([q @ keys.transpose(2, 3) + sequence.noisy_bias_QR.to(q.dtype), own], dim=-1)
        weight, own_weight = torch.split(score.softmax(-1), [keys.shape[2], own.shape[-1]], dim=-1)
        own_weight = own_weight.reshape(*own_q.shape[:-1], own.shape[-1])
        gathered: Tensor = weight @ values + (own_weight @ own_v).flatten(2, 3)
        return gathered.transpose(1, 2)

    return attend

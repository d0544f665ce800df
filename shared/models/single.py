"""The same work in one process, one thing after the other: the reference that two processes must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shared.models.family import AgentMedia, Family, Observation, StepDecision


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Everything that one unit gave."""

    said: StepDecision
    latents: Tensor
    emission: AgentMedia


def replies_to(
    family: Family[Any, Any], seeds: Sequence[int], observations: Iterable[Sequence[Observation]]
) -> Iterator[list[Reply]]:
    """Answer sessions that run in step, unit by unit, in one batch; a row of observations has one of each."""
    memory = family.allocate(len(seeds))
    states = [family.init_state(memory, slot, seed) for slot, seed in enumerate(seeds)]
    for unit, users in enumerate(observations):
        units = [unit] * len(seeds)
        said = family.state_pass(states, units, users, family.encode(states, users))
        latents = family.solve(states, units)
        emissions = family.decode(states, latents)
        family.commit(states, units, latents)
        yield [Reply(said=s, latents=y, emission=e) for s, y, e in zip(said, latents, emissions, strict=True)]


def reply_to(family: Family[Any, Any], seed: int, observations: Iterable[Observation]) -> Iterator[Reply]:
    """Answer one session's observations unit by unit, with one cache and no link."""
    for (reply,) in replies_to(family, [seed], ((user,) for user in observations)):
        yield reply

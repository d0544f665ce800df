"""The same work in one process, one thing after the other: the reference that two processes must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shared.models.family import Emission, Family, Observation, Said


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Everything that one unit gave."""

    said: Said
    latents: Tensor
    emission: Emission


def reply_to(family: Family[Any], seed: int, observations: Iterable[Observation]) -> Iterator[Reply]:
    """Answer a session's observations unit by unit, with one cache and no link."""
    state = family.init_state(seed)
    for unit, user in enumerate(observations):
        said = family.state_pass(state, unit, user, family.encode(state, user))
        latents = family.solve(state, unit)
        emission = family.decode(state, latents)
        family.remember(state, unit, latents)
        yield Reply(said=said, latents=latents, emission=emission)

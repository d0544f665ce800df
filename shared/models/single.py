"""The same work in one process, one thing after the other: the reference that two processes must equal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from shared.models.family import AgentMedia, Family, StepDecision, UserUnit


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Everything that one unit gave."""

    decision: StepDecision
    latents: Tensor
    media: AgentMedia


def replies_to(
    family: Family, seeds: Sequence[int], observations: Iterable[Sequence[UserUnit]]
) -> Iterator[list[Reply]]:
    """Answer sessions that run in step, unit by unit, in one batch; a row of observations has one of each."""
    memory = family.allocate(len(seeds))
    states = [family.init_state(memory, slot, seed) for slot, seed in enumerate(seeds)]
    for unit, users in enumerate(observations):
        units = [unit] * len(seeds)
        decisions = family.state_pass(states, units, users, family.encode(states, users))
        latents = family.solve(states, units)
        media = family.decode(states, latents)
        family.commit(states, units, latents)
        rows = zip(decisions, latents, media, strict=True)
        yield [Reply(decision=decision, latents=y, media=shown) for decision, y, shown in rows]


def reply_to(family: Family, seed: int, observations: Iterable[UserUnit]) -> Iterator[Reply]:
    """Answer one session's observations unit by unit, with one cache and no link."""
    for (reply,) in replies_to(family, [seed], ((user,) for user in observations)):
        yield reply

"""Profiles to plan with."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.planner.profile import Curve, ExchangeCost, Profile, Sizes, StageCost, StageCosts

MakeProfile = Callable[..., Profile]
# Milliseconds of the pocket model on two cores, as they were before sessions were batched.
POCKET = {
    "encode": 3.5, "state": 7.2, "pack": 0.05, "append": 0.15, "solve": 15.5, "decode": 13.8, "remember": 4.3,
}  # fmt: skip


def make(
    ms: dict[str, float] | None = None, *, gain: float = 1.0, spread: float = 1.0, **changes: Any
) -> Profile:
    """A profile with these stage costs; a batch of n costs n ** gain times as much."""

    def curve(value: float) -> Curve:
        return tuple((n, value * n**gain) for n in (1, 2, 4, 8))

    stages = {
        name: StageCost(ms=curve(value), spread=((50, 1.0), (99, spread)))
        for name, value in {**POCKET, **(ms or {})}.items()
    }
    profile = Profile(
        model="pocket",
        machine="two cores",
        unit_ms=160.0,
        stages=StageCosts(**stages),
        exchange=ExchangeCost(fixed_us=130.0, us_per_mb=0.0),
        sizes=Sizes(
            thinker_weights=45_000_000, performer_weights=100_000, shared_weights=20_000_000,
            session_cache=5_000_000, state_slice=135_000, remember_slice=98_000, latents=4_000,
        ),
    )  # fmt: skip
    return dataclasses.replace(profile, **changes)


@pytest.fixture(scope="session")
def make_profile() -> MakeProfile:
    """Makes a profile from stage costs."""
    return make

"""What planning knows of a model on a machine: measured costs and sizes, as JSON that people can edit.

Every dependence on a number ("by sessions in a batch", "by ranks") is a curve: [[number, value], ...].
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import ConfigError
from shared.tables import from_table

Curve = tuple[tuple[int, float], ...]
NONE: Curve = ((1, 1.0),)  # a factor that is not known


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """Cost of one stage: ms (p50) by the number of sessions in a batch.

    `spread`, of one session: [[percentile, it ÷ p50], ...].
    """

    ms: Curve
    spread: Curve = ((50, 1.0),)

    def __post_init__(self) -> None:
        _check_curve("ms", self.ms)
        _check_rising("ms", self.ms)
        percents = [percent for percent, _ in self.spread]
        if percents != sorted(set(percents)) or not {50} <= set(percents) <= set(range(100)):
            raise ValueError(f"spread={self.spread} must rise in percentiles from 0 to 99, 50 among them")
        if dict(self.spread)[50] != 1 or not all(0 < factor < float("inf") for _, factor in self.spread):
            raise ValueError(f"spread={self.spread} must be 1 at 50, and above 0")
        _check_rising("spread", self.spread)

    def at(self, sessions: int) -> float:
        """Milliseconds for a batch: on straight lines between measured sizes.

        Beyond them every further session costs as much as it did between the last two, or on average where
        that is more: nothing is hoped for that was not seen. A stage that was measured at one size alone is
        taken to gain nothing from batching.
        """
        curve = self.ms if len(self.ms) > 1 else ((0, 0.0), *self.ms)
        (x0, y0), (x1, y1) = curve[0], curve[-1]
        on_lines = interpolate(curve, sessions)
        return on_lines if sessions <= x1 else max(on_lines, y1 + (sessions - x1) * (y1 - y0) / (x1 - x0))

    def factors(self) -> list[float]:
        """What a duration may be of its p50, a hundred equally likely values."""
        lowest = self.spread[0]
        return [interpolate(self.spread, max(percent, lowest[0])) for percent in range(100)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCosts:
    """The stages of a unit. `pack` and `append` are those of one slice; every unit has two of them."""

    encode: StageCost
    state: StageCost
    pack: StageCost
    append: StageCost
    solve: StageCost
    decode: StageCost
    remember: StageCost


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeCost:
    """Time from a packed message to its sight at the other side, in which neither side works."""

    fixed_us: float
    us_per_mb: float

    def __post_init__(self) -> None:
        for name, value in (("fixed_us", self.fixed_us), ("us_per_mb", self.us_per_mb)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name}={value} must be at least 0")

    def ms(self, num_bytes: float) -> float:
        """Milliseconds for a message."""
        return (self.fixed_us + self.us_per_mb * num_bytes / 1e6) / 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Bytes: weights by who needs them, one session's cache, what travels in a unit.

    `device_bytes` is the memory of one device; 0 means that it limits nothing.
    """

    thinker_weights: int
    performer_weights: int
    shared_weights: int
    session_cache: int
    state_slice: int
    remember_slice: int
    latents: int
    device_bytes: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A model on a machine.

    `rank_speed_up`: how much faster a group of n Performer ranks solves than one. `decode_speed_up`: the same
    for n decoder shards that split a unit's picture; without it shards take different sessions.
    `slow_down`: how much longer everything takes while n devices work at once (they may share memory).
    """

    model: str
    machine: str
    unit_ms: float
    stages: StageCosts
    exchange: ExchangeCost
    sizes: Sizes
    rank_speed_up: Curve = NONE
    decode_speed_up: Curve = NONE
    slow_down: Curve = NONE

    def __post_init__(self) -> None:
        if not 0 < self.unit_ms < float("inf"):
            raise ValueError(f"unit_ms={self.unit_ms} must be above 0")
        for name in ("rank_speed_up", "decode_speed_up", "slow_down"):
            curve: Curve = getattr(self, name)
            _check_curve(name, curve)
            if curve[0][1] != 1 or not all(factor > 0 for _, factor in curve):
                raise ValueError(f"{name}={curve} must be 1 for one, and above 0")
        _check_rising("slow_down", self.slow_down)

    @property
    def splits_decode(self) -> bool:
        """Whether decoder shards share out one unit; else each takes other sessions."""
        return len(self.decode_speed_up) > 1

    def slowed(self, devices: int) -> float:
        """How much longer work takes while so many devices are busy."""
        return interpolate(self.slow_down, max(1, devices))


def interpolate(curve: Curve, at: float) -> float:
    """The value on straight lines through a curve's points; beyond the last two on theirs."""
    if len(curve) == 1:
        return curve[0][1]
    pieces = list(itertools.pairwise(curve))
    (x0, y0), (x1, y1) = next((piece for piece in pieces if at <= piece[1][0]), pieces[-1])
    return y0 + (at - x0) * (y1 - y0) / (x1 - x0)


def read_profile(path: Path) -> Profile:
    """Read a profile, alone in a file or as `bench profile --json` writes it beside the figures.

    Raises:
        ConfigError: no such file, not JSON, an unknown key or a wrong value; names file and field.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"profile {path}: can't be read: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"profile {path}: holds no JSON object")
    table = content.get("profile", content)
    if not isinstance(table, dict):
        raise ConfigError(f"profile {path}: 'profile' is no JSON object")
    try:
        return from_table(Profile, table, "profile")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_curve(name: str, curve: Curve) -> None:
    counts = [count for count, _ in curve]
    if not counts or counts[0] != 1 or counts != sorted(set(counts)):
        raise ValueError(f"{name}={curve} must begin at 1 and rise")
    if not all(0 <= value < float("inf") for _, value in curve):
        raise ValueError(f"{name}={curve} must be numbers from 0 on")


def _check_rising(name: str, curve: Curve) -> None:
    values = [value for _, value in curve]
    if values != sorted(values):
        raise ValueError(f"{name}={curve} must not fall")

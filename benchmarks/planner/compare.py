"""Predictions beside what `bench layouts --json` measured: both are units a second of sessions unpaced."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planner.layouts import ONE_PROCESS, PAIR, Cell
from benchmarks.planner.profile import Profile
from benchmarks.planner.simulate import simulate
from benchmarks.planner.workload import Workload
from shared.errors import ConfigError

PAIR_NAME = re.compile(r"pair(?:, (\d+) phases?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Units a second of one layout with so many sessions."""

    layout: str
    sessions: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """How much too high the prediction is, as a share of what was measured."""
        return self.predicted / self.measured - 1


def compare(profile: Profile, path: Path, units: int) -> list[Comparison]:
    """Predict every layout in a file of `bench layouts`, but those of more than one thread a process.

    Raises:
        ConfigError: no such file, or it is not one of `bench layouts`.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        found = list(_compared(profile, rows, units))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not written by bench layouts --json: {error!r}") from None
    if not found:
        raise ConfigError(f"{path}: has no layout that could be predicted")
    return found


def _compared(profile: Profile, rows: list[dict[str, Any]], units: int) -> Iterator[Comparison]:
    for row in rows:
        known = _layout_of(str(row.get("layout")))
        if known is not None:
            cell, copies, phases = known
            sessions = int(row["sessions"])
            load = Workload(
                sessions=sessions // copies, phases=phases, units=units, unpaced=True, copies=copies
            )
            yield Comparison(
                layout=row["layout"], sessions=sessions, measured=float(row["units/s"]),
                predicted=copies * simulate(profile, cell, load).units_per_s,
            )  # fmt: skip


def _layout_of(name: str) -> tuple[Cell, int, int] | None:
    """Cell, copies and phases by the names that `bench layouts` gives."""
    if (pair := PAIR_NAME.fullmatch(name)) is not None:
        return PAIR, 1, int(pair[1] or 1)
    return {"one process, 1 thread": (ONE_PROCESS, 1, 1), "two replicas": (ONE_PROCESS, 2, 1)}.get(name)

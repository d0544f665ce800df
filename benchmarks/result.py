"""What a bench gives: rows and ratios, how they are printed, and what they were measured on."""

import itertools
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from shared.devices import claim_core


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """Rows of named figures, and the ratios that checks read (None with a reason among the notes).

    `extra` is what else the JSON holds.
    """

    rows: list[dict[str, str | float]]
    ratios: dict[str, float | None]
    notes: list[str]
    extra: dict[str, object] = field(default_factory=dict)


def machine(pin: str = "off") -> dict[str, str | int]:
    """What the figures were measured on, for processes that are pinned like this."""
    with claim_core("bench", pin) as core:
        each = "none" if core is None else "a core each"
    return describe(f"{each} ({pin})" if pin == "auto" else each)


def show(console: Console, result: BenchResult) -> None:
    """Print rows as tables, one for those with the same columns, then the ratios."""
    for columns, rows in itertools.groupby(result.rows, key=tuple):
        table = Table(*columns)
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in columns))
        console.print(table)
    for name, ratio in result.ratios.items():
        console.print(f"{name:<32} {'-' if ratio is None else f'{ratio:.3f}'}")
    for note in result.notes:
        console.print(note)


def _cell(value: str | float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)

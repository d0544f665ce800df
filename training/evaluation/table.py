"""The table of the model card: what was measured beside the goals, with what it was measured."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training.errors import TrainingError
from training.evaluation.measures import MEASURES, Measure

BEGIN, END = "<!-- levels: begin -->", "<!-- levels: end -->"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A measure and what came out."""

    measure: Measure
    value: float

    @property
    def shown(self) -> str:
        """The value in as many digits as mean something, with its unit."""
        if math.isnan(self.value):
            return "not installed" if self.measure.optional else "–"
        if math.isinf(self.value):
            return "never"
        digits = 0 if self.value.is_integer() else 1 if self.measure.unit else 2
        return f"{self.value:.{digits}f} {self.measure.unit}".rstrip().replace("-", "−")

    @property
    def verdict(self) -> str:
        """Whether the goal is met; empty without a goal."""
        goal = self.measure.goal
        return "" if goal is None else "met" if goal.hold(self.value) else "missed"


def rows(measured: Mapping[str, float]) -> Iterator[Row]:
    """The table's rows for what was measured, in its order."""
    unknown = measured.keys() - {measure.name for measure in MEASURES}
    assert not unknown, f"measures without a row: {unknown}"
    for measure in MEASURES:
        if measure.name in measured:
            yield Row(measure=measure, value=measured[measure.name])


def markdown(measured: Mapping[str, float], head: str) -> str:
    """The table as the card shows it, under a line that says with what it was measured."""
    lines = [head, "", "| level | measure | goal | measured | |", "|---|---|---|---|---|"]
    for row in rows(measured):
        measure = row.measure
        goal = "" if measure.goal is None else f"{measure.goal} {measure.unit}".rstrip()
        lines.append(f"| {measure.level} | {measure.title} | {goal} | {row.shown} | {row.verdict} |")
    return "\n".join(lines)


def write_card(path: Path, measured: Mapping[str, float], head: str) -> None:
    """Put the table between the two markers of a card; raises as `write_table` does."""
    write_table(path, markdown(measured, head))


def write_table(path: Path, table: str) -> None:
    """Put any table between the two markers of a card.

    Raises:
        TrainingError: there is no such file, or no such markers in it.
    """
    before, after = around_table(path)
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def around_table(path: Path) -> tuple[str, str]:
    """What stands before and after the table of a card; raises as `write_card` does."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"--card {path}: {error.strerror}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise TrainingError(f"--card {path}: it needs the lines {BEGIN} and {END}, in this order")
    return before, after

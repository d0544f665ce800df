"""The gates of the short evaluation: what the shipped weights must not fall below.

A gate is the figure of the card minus its scatter: the trials of the whole form are drawn again, with
replacement, as often as the short form has trials of each kind, and judged as the short form is. The worst
RARE share of DRAWS such short forms lies beyond the gate. So a gate is as wide as chance makes the short
form, and what falls below it is less likely to be chance than RARE. No draw is worse than the worst trial
that was seen, which matters where few trials make a measure: so a gate is at least SIGMAS standard
deviations of the draws from their mean, which is as rare where they are normally distributed. Every measure
with a goal has a gate, unless "never" is so frequent among the draws that nothing could fall beyond it.
Where the whole form saw no failure at all, its N trials say that failures are less frequent than 3 / N (the
rule of three), and the gate is where so many would be that rare.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.evaluation.measures import MEASURES, Bounds, as_json
from training.evaluation.parts import EvaluationConfig, EvaluationJob, PairTimes, Part, Trial

DRAWS, RARE, SIGMAS = 1000, 0.005, 2.576
MARGIN = 1e-9  # of rounding

Gates = dict[str, Bounds]


def gates_of(part: Part, trials: list[Trial], short: list[EvaluationJob], config: EvaluationConfig) -> Gates:
    """The gates of a part's measures, from its trials in the whole form and its jobs in the short one."""
    rng = np.random.default_rng(0)
    pools = {job.kind: [trial for trial in trials if trial.kind == job.kind] for job in short}
    drawn = []
    for _ in range(DRAWS):
        chosen: list[Trial] = []
        for job in short:
            pool = pools[job.kind]
            chosen += [pool[int(index)] for index in rng.integers(len(pool), size=job.trials)]
        drawn.append(part.judge(chosen, config))
    gates = {}
    for measure in MEASURES:
        if measure.goal is not None and measure.name in drawn[0]:
            values = np.array([one[measure.name] for one in drawn])
            if measure.unit == "%" and (values == 100).all():
                num = sum(job.trials for job in short)
                values = 100 - 100 * rng.binomial(num, min(1, 3 / len(trials)), DRAWS) / num
            bounds = _bounds(values, measure.goal)
            if bounds is not None:
                gates[measure.name] = bounds
    return gates


def _bounds(values: NDArray[np.float64], goal: Bounds) -> Bounds | None:
    known = values[~np.isnan(values)]
    low = float(np.quantile(known, RARE, method="lower")) - MARGIN
    high = float(np.quantile(known, 1 - RARE, method="higher")) + MARGIN
    if np.isfinite(known).all():
        mean, scatter = float(known.mean()), SIGMAS * float(known.std())
        low, high = min(low, mean - scatter), max(high, mean + scatter)
    bounds = Bounds(
        low=-math.inf if math.isinf(goal.low) else low, high=math.inf if math.isinf(goal.high) else high
    )
    return None if math.isinf(bounds.low) and math.isinf(bounds.high) else bounds


def fallen(measured: Mapping[str, float], gates: Gates) -> Iterator[str]:
    """One line for each measure that is outside its gate."""
    for measure in MEASURES:
        gate = gates.get(measure.name)
        if gate is not None and measure.name in measured and not gate.hold(measured[measure.name]):
            value = measured[measure.name]
            shown = f"{value:.2f} {measure.unit}".rstrip() if math.isfinite(value) else as_json(value)
            yield f"level {measure.level}: {measure.what}: {shown}, must be {gate}"


def gates_file(card: Path) -> Path:
    """Where the gates of a card are: beside it."""
    return card.with_suffix(".json")


def write_gates(card: Path, gates: Gates, pair: PairTimes, provenance: Mapping[str, object]) -> None:
    """Write the gates beside their card, with what the card was measured with."""
    content = {
        **provenance,
        "model_side_ms": {"p50": pair.p50_ms, "p99": pair.p99_ms},
        "gates": {
            name: {
                side: value
                for side, value in (("low", gate.low), ("high", gate.high))
                if math.isfinite(value)
            }
            for name, gate in gates.items()
        },
    }
    gates_file(card).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_gates(card: Path) -> tuple[Gates, PairTimes]:
    """The gates of a card, and the time of the pair that its answers were measured with.

    Raises:
        TrainingError: there are none; the whole form writes them.
    """
    path = gates_file(card)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pair = content["model_side_ms"]
        times = PairTimes(p50_ms=float(pair["p50"]), p99_ms=float(pair["p99"]))
        return {name: Bounds(**sides) for name, sides in content["gates"].items()}, times
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"--short: no gates in {path} ({error}): `evaluate --card` writes them") from None

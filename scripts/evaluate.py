"""Measure every level of the pocket model on what it was never trained on, and compare with the goals."""

from __future__ import annotations

import argparse
import importlib
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts.bench import machine, positive
from scripts.common import add_config_argument, seed_number
from scripts.output import check_target, write_json
from shared.devices import check_device
from shared.errors import RuntimeFault

if TYPE_CHECKING:
    from training.evaluation.parts import ModelSource, PartResult

LEVELS = range(6)
ROOM_S = 10.0  # by which a film may turn out shorter than asked
EXAMPLES = """\
examples:
  evaluate                                            everything, from the shipped weights (15 min on 2 cores)
  evaluate --level 3 --weights runs/checkpoint        one level, of weights of your own
  evaluate --json v.json --card docs/pocket-model.md  ... and write the card's table
  evaluate --short                                    quickly, and fail if the weights do worse than they did

  evaluate --user USER.mp4 --minutes 10               somebody to talk to, on film; a JSON tells what is asked
  live --input USER.mp4 --record OUT.mp4 --report R.json
  evaluate --recording OUT.mp4 --report R.json        the first minute of that session against its last

exit codes: 0 done, 1 a measure fell below its bar (with --short) or something failed, 2 wrong arguments
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    add_config_argument(parser)
    parser.add_argument(
        "--weights", type=Path, metavar="DIR", help="checkpoint folder (default: the config's own)"
    )
    parser.add_argument(
        "--level", type=int, choices=LEVELS, action="append", help="only this level; again for more"
    )
    parser.add_argument("--short", action="store_true", help="measure little, as scripts/check does")
    parser.add_argument(
        "--user", type=Path, metavar="FILE.mp4",
        help="write a film of somebody who asks things, in an unseen voice, instead",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=positive, default=10, metavar="N", help="of that film (default %(default)s)"
    )
    parser.add_argument(
        "--recording", type=Path, metavar="FILE.mp4",
        help="measure this recording of the agent (live --record) instead",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, metavar="R.json", help="of the recorded session (live --report)"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR",
        help="where the users' voices are kept once they are spoken (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all measures and single cases")
    parser.add_argument("--card", type=Path, metavar="FILE.md", help="rewrite the table of this model card")
    parser.add_argument("--seed", type=seed_number, default=0, help="of sessions (default %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or xpu:N (default %(default)s)")
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="of each process (default %(default)s)"
    )
    parser.add_argument(
        "--workers", type=positive, default=2, metavar="N",
        help="processes; 1: all in this one (default %(default)s)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    try:
        importlib.import_module("training.evaluation.levels")
    except ModuleNotFoundError as error:
        raise RuntimeFault(f"{error.name} is missing: pip install 'thinker-performer[dev]'") from None
    if args.json is not None:
        check_target(args.json)
    if args.user is not None:
        return _user(args)
    if args.recording is not None:
        return _recording(args)
    check_device(args.device)
    return _levels(args)


def _levels(args: argparse.Namespace) -> int:
    from training.evaluation.parts import ModelSource, load  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.table import fallen, rows, write_card  # noqa: PLC0415

    console, began = Console(), time.monotonic()
    source = ModelSource(config=args.config, weights=args.weights, device=args.device, threads=args.threads)
    digest = load(source).digest  # what is wrong with config or weights is said before any process starts
    found = _measure(args, source, console)
    levels = set(args.level or LEVELS)
    measures = {name: value for findings in found.values() for name, value in findings.measures.items()}
    shown = [row for row in rows(measures) if row.measure.level in levels]
    table = Table(title=f"{args.config}, weights {digest[:12]}")
    for column in ("level", "measure", "value", "unit", "goal", ""):
        table.add_column(column, justify="right" if column in {"level", "value"} else "left")
    for row in shown:
        goal = str(row.measure.goal or "")
        table.add_row(
            str(row.measure.level), row.measure.what, row.shown, row.measure.unit, goal, row.verdict
        )
    console.print(table)
    console.print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    if args.json is not None:
        content = {
            "name": "evaluate",
            "digest": digest,
            "seed": args.seed,
            "short": args.short,
            "machine": machine(),
            "minutes": round((time.monotonic() - began) / 60, 2),
            "measures": {row.measure.name: None if math.isnan(row.value) else row.value for row in shown},
            "verdicts": {row.measure.name: row.verdict for row in shown if row.verdict},
            "cases": {name: findings.cases for name, findings in found.items()},
        }
        write_json(args.json, content)
        console.print(f"wrote {args.json}")
    if args.card is not None:
        write_card(args.card, measures)
        console.print(f"wrote the table of {args.card}")
    failed = list(fallen(measures)) if args.short else []
    for line in failed:
        console.print(f"fell: {line}")
    return 1 if failed else 0


def _measure(args: argparse.Namespace, source: ModelSource, console: Console) -> dict[str, PartResult]:
    from training.evaluation.levels import PARTS  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.parts import FULL, SHORT, EvaluationConfig, measure  # noqa: PLC0415

    chosen = [part for part in PARTS if part.levels & set(args.level or LEVELS)]
    setting = EvaluationConfig(effort=SHORT if args.short else FULL, seed=args.seed, data=args.runs / "data")
    plans = {part.name: part.plan(setting) for part in chosen}
    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=len(jobs)) for name, jobs in plans.items()}
        results = measure(
            source, plans, workers=args.workers, advance=lambda name: progress.advance(bars[name])
        )
    return {part.name: part.judge(results[part.name]) for part in chosen}


def _user(args: argparse.Namespace) -> int:
    from training.data.film import write_user  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.parts import FULL, EvaluationConfig  # noqa: PLC0415

    check_target(args.user)
    setting = EvaluationConfig(effort=FULL, seed=args.seed, data=args.runs / "data")
    bank = setting.speakers()[-1].bank()  # flite's: few speakers, each of whom can say everything
    events = write_user(args.user, bank, np.random.default_rng(args.seed), 60.0 * args.minutes + ROOM_S)
    print(f"wrote {args.user}, and {args.user.with_suffix('.json')}: {len(events)} things are said")
    return 0


def _recording(args: argparse.Namespace) -> int:
    from training.evaluation.session import compare  # noqa: PLC0415 - needs the dev packages

    compared = compare(args.recording, args.report)
    console = Console()
    table = Table("measure", "first minute", "last minute", "difference", title=str(args.recording))
    for row in compared.rows:
        table.add_row(
            f"{row.what} ({row.unit})", f"{row.first:.2f}", f"{row.last:.2f}", f"{row.last - row.first:+.2f}"
        )
    console.print(table)
    for what, value in compared.whole.items():
        console.print(f"{what}: {value:.2f}")
    if args.json is not None:
        write_json(args.json, compared.content())
        console.print(f"wrote {args.json}")
    return 0

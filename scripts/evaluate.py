"""Measure every level of the pocket model on what it was never trained on, and compare with the goals."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.result import machine
from scripts.arguments import add_config_argument, seed_number
from scripts.bench import positive
from scripts.evaluate_film import evaluate_film
from scripts.output import check_target, write_json
from shared.devices import check_device
from shared.errors import ConfigError, RuntimeFault

if TYPE_CHECKING:
    from training.evaluation.gates import Gates
    from training.evaluation.parts import EvaluationConfig, EvaluationJob, ModelSource, PairTimes, Part, Trial

ROOT = Path(__file__).resolve().parents[1]
CARD = ROOT / "docs" / "pocket-model.md"
LEVELS = range(6)
TIMED_LEVELS = {4, 5}  # in which it matters how long the model works
LOG_WIDTH = 150  # of a table that goes to a file
REPORTS = 4  # lines of progress for each part
PAIR_S = 24.0  # of the session that tells how long
ROOM_S = 10.0  # by which a film may turn out shorter than asked
EXAMPLES = """\
examples:
  evaluate                                            everything, of the shipped weights (10 to 15 minutes)
  evaluate --level 3 --weights runs/checkpoint        one level, of weights of your own
  evaluate --json v.json --card docs/pocket-model.md  ... and write the card's table and gates
  evaluate --short                                    quickly, and fail if the weights do worse than they did

  evaluate --film --card docs/wan-pocket.md           the film model: its card, sample sheet and gates
  evaluate --film --short                             ... quickly, and fail if it does worse than it did

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
    parser.add_argument(
        "--short", action="store_true", help="measure little, and fail below the gates of the card"
    )
    parser.add_argument(
        "--film", action="store_true", help="of the film model wan-pocket, by its frames (about 6 minutes)"
    )
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
    parser.add_argument(
        "--card",
        type=Path,
        metavar="FILE.md",
        help="rewrite the table of this model card, and its gates beside it",
    )
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
    if args.film:
        return evaluate_film(args)
    if args.json is not None:
        check_target(args.json)
    if args.user is not None:
        return _user(args)
    if args.recording is not None:
        return _recording(args)
    if args.card is not None and (args.short or args.level):
        raise ConfigError("--card is for the whole form: leave --short and --level out")
    check_device(args.device)
    return _levels(args)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationRun:
    """What is measured, with what, and how long it has taken."""

    args: argparse.Namespace
    source: ModelSource
    parts: list[Part]
    config: EvaluationConfig
    gates: Gates  # of the card; of the short form alone
    provenance: dict[str, object]
    began: float

    @property
    def minutes(self) -> float:
        """Since the beginning."""
        return (time.monotonic() - self.began) / 60

    @property
    def head(self) -> str:
        """With what it is measured, in a line."""
        known = self.provenance
        through = "of the card" if self.args.short else "measured through `live` with both processes"
        return (
            f"{known['config']}, digest of config and weights `{known['digest']}`, computed in "
            f"{known['format']}, code at commit `{known['commit']}`, seed {known['seed']}; "
            f"model-side time {through}; {known['cpu']}, {known['cores']} cores."
        )


def _levels(args: argparse.Namespace) -> int:
    from training.evaluation.gates import fallen, write_gates  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.table import around_table, write_card  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    if args.card is not None:
        around_table(args.card)  # what is wrong with it is said before a quarter of an hour has passed
    run = _prepare(args, console)
    short = _short_form(run) if args.card is not None else {}
    trials = _measure(run, console)
    measures = {
        name: value for part in run.parts for name, value in part.judge(trials[part.name], run.config).items()
    }
    levels = set(args.level or LEVELS)
    measures = {name: value for name, value in measures.items() if _level_of(name) in levels}
    _show(run, measures, console)
    if args.json is not None:
        write_json(args.json, _content(run, measures, trials))
        console.print(f"wrote {args.json}")
    if args.card is not None:
        write_card(args.card, measures, run.head)
        write_gates(args.card, _gates(run, trials, short), run.config.pair, run.provenance)
        console.print(f"wrote the table of {args.card}, and its gates beside it")
    failed = list(fallen(measures, run.gates))
    for line in failed:
        console.print(f"fell: {line}")
    return 1 if failed else 0


def _prepare(args: argparse.Namespace, console: Console) -> EvaluationRun:
    """Find out all that can go wrong before anything long begins, and time the pair."""
    from training.evaluation.gates import read_gates  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.levels import PARTS  # noqa: PLC0415
    from training.evaluation.parts import (  # noqa: PLC0415
        FULL,
        SHORT,
        EvaluationConfig,
        ModelSource,
        PairTimes,
        load,
    )

    began = time.monotonic()
    source = ModelSource(config=args.config, weights=args.weights, device=args.device, threads=args.threads)
    digest, _, number_format = load(source).digest.partition("-")
    about = machine()
    provenance: dict[str, object] = {
        "config": args.config,
        "digest": digest,
        "commit": commit(ROOT),
        "format": number_format,
        "seed": args.seed,
        "cpu": about["cpu"],
        "cores": about["cores"],
    }
    levels = set(args.level or LEVELS)
    gates, pair = read_gates(CARD) if args.short else ({}, PairTimes(p50_ms=0.0, p99_ms=0.0))
    if not args.short and levels & TIMED_LEVELS:
        pair = _time_pair(args, console)
    return EvaluationRun(
        args=args, source=source, gates=gates, provenance=provenance, began=began,
        parts=[part for part in PARTS if part.levels & levels],
        config=EvaluationConfig(
            counts=SHORT if args.short else FULL, seed=args.seed, data=args.runs / "data", pair=pair
        ),
    )  # fmt: skip


def commit(root: Path) -> str:
    """The git commit of the code in a folder, with "+changes" where files differ; "unknown" outside git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return "unknown"
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _time_pair(args: argparse.Namespace, console: Console) -> PairTimes:
    """Hold a session of the two processes with a user on film, and read its report."""
    from training.evaluation.parts import PairTimes  # noqa: PLC0415 - needs the dev packages

    console.print(f"a session of {PAIR_S:.0f} s through both processes, for the model-side time")
    with tempfile.TemporaryDirectory() as folder:
        film, report = Path(folder) / "user.mp4", Path(folder) / "report.json"
        _write_user(args, film, PAIR_S)
        command = [
            sys.executable, "-m", "scripts.main", "live", "--config", args.config, "--device", args.device,
            "--port", "0", "--input", film, "--seconds", str(PAIR_S), "--report", report, "--no-browser",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            times = json.loads(report.read_text(encoding="utf-8"))["model_side_ms"]
            return PairTimes(p50_ms=float(times["p50"]), p99_ms=float(times["p99"]))
        except (OSError, ValueError, KeyError, TypeError):
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeFault(f"no model-side time: live ended with {done.returncode}: {last}") from None


def _measure(run: EvaluationRun, console: Console) -> dict[str, list[Trial]]:
    from training.evaluation.parts import measure  # noqa: PLC0415 - needs the dev packages

    plans = {part.name: part.plan(run.config) for part in run.parts}
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=len(jobs)) for name, jobs in plans.items()}
        done = dict.fromkeys(plans, 0)

        def advance(name: str) -> None:
            progress.advance(bars[name])
            done[name] += 1
            total = len(plans[name])
            if done[name] * REPORTS // total > (done[name] - 1) * REPORTS // total:
                console.print(f"{run.minutes:5.1f} min: {name}, {done[name]} of {total} jobs")

        return measure(run.source, plans, workers=run.args.workers, advance=advance)


def _level_of(name: str) -> int:
    from training.evaluation.measures import MEASURES  # noqa: PLC0415 - needs the dev packages

    return next(measure.level for measure in MEASURES if measure.name == name)


def _show(run: EvaluationRun, measures: dict[str, float], console: Console) -> None:
    from training.evaluation.table import rows  # noqa: PLC0415 - needs the dev packages

    table = Table("level", "measure", "goal", "measured", "", title=run.head)
    for row in rows(measures):
        measure = row.measure
        goal = "" if measure.goal is None else f"{measure.goal} {measure.unit}"
        table.add_row(str(measure.level), measure.title, goal, row.shown, row.verdict)
    console.print(table)
    console.print(f"{run.minutes:.1f} minutes")


def _content(
    run: EvaluationRun, measures: dict[str, float], trials: dict[str, list[Trial]]
) -> dict[str, object]:
    from training.evaluation.measures import as_json  # noqa: PLC0415 - needs the dev packages
    from training.evaluation.table import rows  # noqa: PLC0415

    return {
        "name": "evaluate",
        **run.provenance,
        "short": run.args.short,
        "machine": machine(),
        "minutes": round(run.minutes, 2),
        "measures": {row.measure.name: as_json(row.value) for row in rows(measures)},
        "verdicts": {row.measure.name: row.verdict for row in rows(measures) if row.verdict},
        "in training": {
            row.measure.name: row.measure.in_training for row in rows(measures) if row.measure.in_training
        },
        "cases": {
            part.name: [case for trial in trials[part.name] for case in part.cases(trial)]
            for part in run.parts
        },
    }


def _short_form(run: EvaluationRun) -> dict[str, list[EvaluationJob]]:
    """The jobs of the short form, planned before the long one: its voices are spoken now, or faults met."""
    from training.evaluation.parts import SHORT  # noqa: PLC0415 - needs the dev packages

    return {part.name: part.plan(dataclasses.replace(run.config, counts=SHORT)) for part in run.parts}


def _gates(
    run: EvaluationRun, trials: dict[str, list[Trial]], short: dict[str, list[EvaluationJob]]
) -> Gates:
    from training.evaluation.gates import gates_of  # noqa: PLC0415 - needs the dev packages

    gates: Gates = {}
    for part in run.parts:
        gates |= gates_of(part, trials[part.name], short[part.name], run.config)
    return gates


def _write_user(args: argparse.Namespace, path: Path, seconds: float) -> int:
    """Write somebody who asks things on film, in flite's unseen voice; returns how many things are said."""
    from training.data.film import write_user  # noqa: PLC0415 - needs the dev packages
    from training.data.split import judging_rng  # noqa: PLC0415
    from training.evaluation.parts import SHORT  # noqa: PLC0415
    from training.evaluation.users import Speakers  # noqa: PLC0415

    speakers = Speakers.speak(args.runs / "data", "flite", requests=100, others=SHORT.others)
    return len(write_user(path, speakers.bank(), judging_rng(args.seed), seconds))


def _user(args: argparse.Namespace) -> int:
    check_target(args.user)
    said = _write_user(args, args.user, 60.0 * args.minutes + ROOM_S)
    print(f"wrote {args.user}, and {args.user.with_suffix('.json')}: {said} things are said")
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

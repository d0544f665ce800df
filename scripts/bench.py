"""Measure. Each bench prints a table with both sides of what it claims, and can write them as JSON."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from scripts.common import add_config_argument
from scripts.output import check_target, write_json
from shared.config import load_config

BENCHES = {
    "pair": "the two processes flat out and on the clock, beside the same work in one process",
    "plan": "the best split of --devices, predicted from a --profile",
    "profile": "what each stage costs, by the number of sessions; --json writes a profile for plan",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchResult:
    """Rows of named figures, and the ratios that checks read (None with a reason among the notes).

    `extra` is what else the JSON holds.
    """

    rows: list[dict[str, str | float]]
    ratios: dict[str, float | None]
    notes: list[str]
    extra: dict[str, object] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    listed = "; ".join(f"{name}: {what}" for name, what in BENCHES.items())
    parser.add_argument("name", choices=BENCHES, help=listed)
    add_config_argument(parser)
    parser.add_argument(
        "--units", type=positive, default=200, metavar="N", help="units a run (default %(default)s)"
    )
    parser.add_argument("--profile", type=Path, metavar="P.json", help="plan: written by `bench profile`")
    parser.add_argument("--devices", type=positive, metavar="N", help="plan: how many there are")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write machine, rows and ratios")


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    if args.json is not None:
        check_target(args.json)
    torch.set_num_threads(load_config(args.config).threads)
    console = Console()
    about = machine()
    console.print(", ".join(f"{key} {value}" for key, value in about.items()))
    result: BenchResult = importlib.import_module(f"scripts.bench_{args.name}").bench(args, console)
    show(console, result)
    if args.json is not None:
        content = {
            "name": args.name,
            "machine": about,
            "rows": result.rows,
            "ratios": result.ratios,
            "notes": result.notes,
        } | result.extra
        write_json(args.json, content)
        console.print(f"wrote {args.json}")
    return 0


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count() or 0,
        "threads per process": torch.get_num_threads(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def show(console: Console, result: BenchResult) -> None:
    """Print rows as a table, then the ratios."""
    columns = list(dict.fromkeys(column for row in result.rows for column in row))
    table = Table(*columns)
    for row in result.rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    console.print(table)
    for name, ratio in result.ratios.items():
        console.print(f"{name:<32} {'-' if ratio is None else f'{ratio:.3f}'}")
    for note in result.notes:
        console.print(note)


def _cell(value: str | float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)

"""Measure. Each bench prints a table with both sides of what it claims, and can write them as JSON."""

import argparse
import importlib
import logging
import math
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.result import BenchResult, machine, show
from scripts.arguments import add_config_argument
from scripts.output import check_target, write_json
from shared.config import load_config
from shared.devices import settle_threads
from shared.errors import ConfigError

BENCHES = {
    "exchange": "slices packed or layer by layer",
    "group": "two Performer ranks that share the model beside one",
    "history": "hours of units: memory, and what a unit costs at the end and where the cache wraps",
    "links": "messages between two processes over each link, beside two plain copies; cores idle and busy",
    "layouts": "the pair beside one process, and beside two replicas, on the same cores; and their memory",
    "pair": "the two processes unpaced and on the clock, beside the same work in one process",
    "plan": "the best split of --devices, predicted from a --profile",
    "profile": "what each stage costs, by the number of sessions; --json writes a profile for plan",
    "wan": "films: denoiser, VAE and both together, beside diffusers, one process and two replicas",
    "sessions": "what batches cost, and how many sessions a pair holds in real time, with and without server",
}


SPECIFIC = {  # options that not every bench has: their default, and whose they are
    "seconds": (20, ("sessions",)),
    "hours": (8.0, ("history",)),
    "sessions": (8, ("history",)),
    "layers": (None, ("exchange", "group", "wan")),
    "frames": (405, ("wan",)),
    "small": (False, ("wan",)),
    "profile": (None, ("plan",)),
    "devices": (None, ("plan",)),
    "measured": (None, ("plan",)),
}
EXAMPLES = """\
examples:
  bench pair --units 150                         stages, overlap, latency of both pacings
  bench sessions --seconds 5 --json s.json       batches, and how many sessions are held
  bench profile --json p.json                    then: bench plan --profile p.json --devices 4

exit codes: 0 done, 1 failed, 2 wrong arguments or config
"""
WIDTH = 160  # of what is not printed to a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description, parser.epilog = __doc__, EXAMPLES
    listed = "; ".join(f"{name}: {what}" for name, what in BENCHES.items())
    parser.add_argument("name", choices=BENCHES, help=listed)
    add_config_argument(parser)
    parser.add_argument(
        "--units", type=positive, default=200, metavar="N", help="units a run (default %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        default=20,
        metavar="N",
        help="sessions: that each number of them is held (default %(default)s)",
    )
    parser.add_argument(
        "--hours", type=hours, default=8.0, metavar="H", help="history: of media (default %(default)s)"
    )
    parser.add_argument(
        "--sessions", type=positive, default=8, metavar="N",
        help="history: that share these hours; 1 takes longest (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--layers", type=positive, metavar="N",
        help="exchange, group: of the speaking tower, wan: of the denoiser, for shapes too large whole",
    )  # fmt: skip
    parser.add_argument(
        "--frames", type=positive, default=405, metavar="N", help="wan: of a film (default %(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="wan: leave the shapes of the real model out")
    parser.add_argument("--profile", type=Path, metavar="P.json", help="plan: written by `bench profile`")
    parser.add_argument("--devices", type=positive, metavar="N", help="plan: how many there are")
    parser.add_argument(
        "--measured", type=Path, metavar="L.json", help="plan: compare with what `bench layouts` wrote"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write machine, rows and ratios")


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def hours(text: str) -> float:
    """A length of time above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours above 0")
    return number


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    for option, (default, benches) in SPECIFIC.items():
        if getattr(args, option) != default and args.name not in benches:
            raise ConfigError(f"--{option} is for bench {' and '.join(benches)} alone, not for {args.name}")
    if args.json is not None:
        check_target(args.json)
    config = load_config(args.config)
    settle_threads(config.threads)
    logging.basicConfig(level=logging.ERROR, format="bench: %(message)s")  # that units are late is the result
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    about = machine(config.pin)
    console.print(", ".join(f"{key} {value}" for key, value in about.items()))
    result: BenchResult = importlib.import_module(f"benchmarks.{args.name}").bench(args, console)
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

"""`evaluate --film`: what the film model makes of prompts that it never met, and of two minutes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.result import machine
from scripts.output import check_target, write_json
from shared.config import load_config
from shared.errors import ConfigError
from shared.processes.model import load_film_model

if TYPE_CHECKING:
    from training.film.evaluation import FilmMeasure

FILM_CONFIG = "wan-pocket"
FILMS, SHORT_FILMS = 96, 16
GATES = Path(__file__).resolve().parents[1] / "docs" / "wan-pocket.json"
SLACK = 0.12  # by which the short form may fall below what it measured when the card was written


def evaluate_film(args: argparse.Namespace) -> int:
    """FilmMeasure, print, and write what was asked for; 1 where the short form falls below its gates."""
    from training.evaluation.table import around_table, write_table  # noqa: PLC0415 - needs the dev packages
    from training.film import evaluation  # noqa: PLC0415

    if args.level or args.user or args.recording:
        raise ConfigError("--film is a measurement of its own: leave --level, --user and --recording out")
    config = load_config(FILM_CONFIG if args.config == "pocket" else args.config)
    if args.weights is not None:
        config = dataclasses.replace(config, weights=str(args.weights))
    if args.card is not None:
        around_table(args.card)
    if args.json is not None:
        check_target(args.json)
    console = Console()
    torch.set_num_threads(args.threads)
    family = load_film_model(config, args.device)
    began = time.monotonic()
    count = SHORT_FILMS if args.short else FILMS
    with console.status("evaluate") as status:
        rows = evaluation.evaluate_words(family, count, status.update)
        if not args.short:
            rows += evaluation.evaluate_length(family, evaluation.LONG_FRAMES, status.update)
    _show(console, rows, f"{config.name}, {count} prompts that were never trained on")
    console.print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    content = {
        "config": config.name,
        "digest": family.digest,
        "machine": machine(),
        "rows": evaluation.to_json(rows),
    }
    if args.json is not None:
        write_json(args.json, content)
    if args.short:
        return _judge(console, rows)
    if args.card is not None:
        write_table(args.card, evaluation.as_table(rows))
        evaluation.write_sheet(family, args.card.with_name(f"{args.card.stem}-sheet.png"))
        short = evaluation.evaluate_words(family, SHORT_FILMS)
        write_json(
            args.card.with_suffix(".json"), content | {"short": {row.name: row.value for row in short}}
        )
        console.print(f"wrote the table of {args.card}, its sample sheet and its gates")
    return 0


def _show(console: Console, rows: list[FilmMeasure], title: str) -> None:
    table = Table("what is judged", "measured", "goal", "checker on drawn films", title=title)
    for row in rows:
        sign = {None: "", True: "met", False: "[bold]missed[/]"}[row.met]
        goal = "" if row.goal is None else f"{'≥' if row.at_least else '≤'} {row.goal:g} {sign}"
        table.add_row(row.name, f"{row.value:.3f}", goal, "" if row.ceiling is None else f"{row.ceiling:.3f}")
    console.print(table)


def _judge(console: Console, rows: list[FilmMeasure]) -> int:
    """Compare with what the short form gave when the card was written."""
    if not GATES.exists():
        raise ConfigError(f"{GATES} is not there: evaluate --film --card writes it")
    before = json.loads(GATES.read_text(encoding="utf-8"))["short"]
    fell = [
        f"{row.name}: {row.value:.3f}, {before[row.name]:.3f} when the card was written"
        for row in rows
        if row.at_least and row.value < before[row.name] - SLACK
    ]
    for line in fell:
        console.print(f"fell: {line}")
    return 1 if fell else 0

"""Train the pocket models, part by part or all of one.

Each part goes on from where its last run was left (Ctrl-C saves). One that was never begun here starts from
the weights that ship, or from random ones with --scratch.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from scripts.arguments import add_config_argument
from shared.checkpoint import FILE
from shared.config import DEFAULT, RuntimeConfig, load_config
from shared.devices import check_device
from shared.errors import CheckpointError, ConfigError, RuntimeFault
from shared.models.pocket.config import PocketConfig
from shared.models.wan.config import WanConfig
from shared.tables import from_table

if TYPE_CHECKING:
    from training.context import TrainContext

FILM_CONFIG = "wan-pocket"
PARTS = {
    "audio-codec": "sound to latents and back (half an hour on one core)",
    "video-codec": "the face to latents and back (three quarters of an hour)",
    "timing": "how long phones last (half a minute)",
    "performer": "the tower that speaks, on the latents of the codecs (an hour and a quarter)",
    "thinker": "the tower that listens, on voices and pictures of users (an hour and a half)",
    "distil": "the tower that speaks, in fewer solver steps (three quarters of an hour; not in `all`)",
}
FILM_PARTS = {
    "film-autoencoder": "films: frames to latents and back (a quarter of an hour on two cores)",
    "film-decoder": "films: its decoder further (half an hour)",
    "film-denoiser": "films: prompts to latents (an hour and a half)",
}
EXAMPLES = """\
examples:
  train data -o samples             look at what it learns from: sound, pictures and clips
  train all --scratch               everything from nothing, about 5 hours on one core
  train performer                   go on with one part, or begin it from the shipped weights
  train film                        all stages of wan-pocket, which makes films, and their weights
  train pack -o my-weights          put the parts together; `evaluate --weights my-weights` measures them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    commands = parser.add_subparsers(dest="part", required=True, metavar="PART")
    data = commands.add_parser("data", help="write a few sample clips: WAV, PNG contact sheet, MP4")
    data.add_argument("-o", "--out", type=Path, default=Path("runs/samples"), metavar="DIR")
    data.add_argument("-n", type=_count, default=3, help="how many (default %(default)s)")
    for name, what in PARTS.items():
        _add_training_options(commands.add_parser(name, help=what))
    everything = commands.add_parser("all", help="all of these in turn, then pack")
    _add_training_options(everything)
    for name, what in FILM_PARTS.items():
        _add_training_options(commands.add_parser(name, help=what), FILM_CONFIG)
    film = commands.add_parser("film", help="all stages of the film model in turn, then its weights")
    _add_training_options(film, FILM_CONFIG)
    film.add_argument(
        "-o", "--out", type=Path, default=Path("runs/film"), metavar="DIR",
        help="checkpoint folder to write (default %(default)s)",
    )  # fmt: skip
    pack = commands.add_parser("pack", help="put the trained parts into a checkpoint folder")
    _add_folders(pack)
    for each in (everything, pack):
        each.add_argument(
            "-o", "--out", type=Path, default=Path("runs/checkpoint"), metavar="DIR",
            help="checkpoint folder to write (default %(default)s)",
        )  # fmt: skip


def _add_folders(parser: argparse.ArgumentParser, config: str = DEFAULT) -> None:
    add_config_argument(parser, config)
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR",
        help="checkpoints, logs and data of the parts (default %(default)s)",
    )  # fmt: skip
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from", dest="base", type=Path, metavar="DIR",
        help="checkpoint folder for what was not trained here (default: those that ship, if any do)",
    )  # fmt: skip
    begin.add_argument("--scratch", action="store_true", help="use no checkpoint: begin with random weights")


def _add_training_options(parser: argparse.ArgumentParser, config: str = DEFAULT) -> None:
    _add_folders(parser, config)
    parser.add_argument(
        "--recipes", type=Path, metavar="DIR",
        help="folder with a TOML file of your own for each part that you train (default: training/configs)",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True,
        help="go on from the part's last checkpoint; --no-resume begins it anew (default: go on)",
    )  # fmt: skip
    _add_compute(parser)


def _add_compute(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or xpu:N (default %(default)s)")
    parser.add_argument("--threads", type=_count, default=1, metavar="N", help="default %(default)s")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    try:
        importlib.import_module("training.data.samples")
    except ModuleNotFoundError as error:
        raise RuntimeFault(f"{error.name} is missing: pip install 'thinker-performer[dev]'") from None
    if args.part == "data":
        return _data(args)
    if args.part in {*FILM_PARTS, "film"}:
        return _train_film(args)
    return _train(args)


def _data(args: argparse.Namespace) -> int:
    from training.data.samples import write_samples  # noqa: PLC0415 - needs the dev packages
    from training.data.split import Split  # noqa: PLC0415
    from training.data.voices.agent import speak  # noqa: PLC0415
    from training.data.voices.sentences import corpus  # noqa: PLC0415

    spoken = [speak(sentence) for sentence in corpus(args.n, 1, Split.TRAIN)]
    for path in write_samples(spoken, args.out):
        print(f"wrote {path}")
    return 0


def _train(args: argparse.Namespace) -> int:
    from training.pack import pack  # noqa: PLC0415 - needs the dev packages
    from training.parts import PARTS as TRAINERS  # noqa: PLC0415

    context = _context(args)
    for name, train_part in TRAINERS.items():
        if args.part == name or (args.part == "all" and name != "distil"):
            train_part(context)
    if args.part in {"pack", "all"}:
        pack(context, args.out)
    return 0


def _train_film(args: argparse.Namespace) -> int:
    from training.film.parts import STAGES, FilmContext, pack  # noqa: PLC0415 - needs the dev packages

    config = load_config(args.config)
    if config.family != "wan" or config.model.get("text") != "pocket":
        raise ConfigError(f"config {config.name}: only wan-pocket and its like are trained here")
    torch.set_num_threads(args.threads)
    check_device(args.device)
    try:
        model = from_table(WanConfig, config.model, "model")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    context = FilmContext(
        model=model, runs=args.runs, recipes=args.recipes, base=_base(args, config), device=args.device,
        resume=args.resume,
    )  # fmt: skip
    for name, train_stage in STAGES.items():
        if args.part in {f"film-{name}", "film"}:
            train_stage(context)
    if args.part == "film":
        pack(context, args.out)
    return 0


def _context(args: argparse.Namespace) -> TrainContext:
    from training.context import TrainContext  # noqa: PLC0415 - needs the dev packages

    config = load_config(args.config)
    context = TrainContext(model=_pocket_config(config), runs=args.runs, base=_base(args, config))
    if args.part != "pack":
        torch.set_num_threads(args.threads)
        check_device(args.device)
        context = dataclasses.replace(context, recipes=args.recipes, device=args.device, resume=args.resume)
    return context


def _pocket_config(config: RuntimeConfig) -> PocketConfig:
    if config.family != "pocket":
        raise ConfigError(
            f"config {config.name}: only the family pocket is trained here, not {config.family}"
        )
    try:
        return from_table(PocketConfig, config.model, "model")
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _base(args: argparse.Namespace, config: RuntimeConfig) -> Path | None:
    if args.scratch:
        return None
    if args.base is not None:
        if not (args.base / FILE).exists():
            raise CheckpointError(f"--from {args.base}: there is no {FILE} in it")
        return Path(args.base)
    shipped = config.weights_folder()
    return shipped if shipped is not None and (shipped / FILE).exists() else None

"""Make a film from text and save it: starts what it needs, or asks a server that runs."""

import argparse
import tempfile
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from client.errors import ClientError
from client.film import FilmServer
from scripts.arguments import add_link_argument, add_token_arguments, seed_number
from scripts.output import check_target, say
from shared.config import load_config
from shared.errors import ConfigError
from shared.models.film import makes_films
from shared.processes.launch import ChildEndedError, free_port, launched
from shared.processes.lifetime import on_signals
from shared.processes.model import check_choices
from shared.processes.secret import client_token
from thinker.film.video_encoder import finish_file

DEFAULT_CONFIG = "wan-pocket"
DEFAULT_FRAMES = 81
EXAMPLES = """\
examples:
  generate "two red circles move left over a blue sky" -o out.mp4
  generate "three orange fish move right over a blue sea" --frames 240 --seed 7 -o fish.mp4
  generate --scene "a red balloon moves up over a green field" --scene "a white star spins over a black night"
      --frames 81 -o story.mp4
  generate "a star spins" --url http://127.0.0.1:8765 -o star.mp4      asks a server that `live` started

What wan-pocket knows: a|one|two|three, small|large, red|orange|yellow|green|blue|purple|white|black,
circle|square|triangle|star|balloon|fish, moves left|right|up|down, spins, bounces, slowly|fast, over a blue
sky|green field|white wall|black night|yellow desert|orange sunset|blue sea. Other words are taken for what
they resemble, with a warning.

exit codes: 0 done, 1 something failed, 2 wrong arguments or config
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    parser.add_argument("prompt", nargs="?", help="what shall be seen")
    parser.add_argument(
        "--scene", action="append", default=[], metavar="PROMPT",
        help="instead of a prompt: a scene of a storyboard; again for more, which follow it",
    )  # fmt: skip
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT.mp4", help="where to save it")
    parser.add_argument(
        "--frames", type=int, default=DEFAULT_FRAMES, metavar="N",
        help="length in frames, of every scene (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--fps", type=int, metavar="N", help="frames a second (default: the model's)")
    parser.add_argument(
        "--seed", type=seed_number, default=0, help="another seed makes another film (default %(default)s)"
    )
    parser.add_argument(
        "--config", default=DEFAULT_CONFIG, metavar="FILE|NAME", help="the model (default %(default)s)"
    )
    parser.add_argument("--url", help="ask this server instead of starting one")
    parser.add_argument(
        "--device", default="cpu", help="of both processes: cpu, cuda:N or xpu:N (default %(default)s)"
    )
    add_link_argument(parser)
    add_token_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    if bool(args.prompt) == bool(args.scene):
        raise ConfigError("give either a prompt or --scene, again for more scenes")
    check_target(args.out)
    request = _request(args)
    stop = threading.Event()
    on_signals(stop.set)
    try:
        if args.url is not None:
            return _generate(
                FilmServer(args.url.rstrip("/"), client_token(args.token_file, args.token)),
                request,
                args,
                stop,
            )
        config = load_config(args.config)
        if not makes_films(config.family):
            raise ConfigError(f"config {config.name} holds live sessions and makes no films")
        check_choices(config, args.link, args.device)
        port = free_port("127.0.0.1")
        options = ["--config", args.config, "--link", args.link, "--device", args.device]
        url = f"http://127.0.0.1:{port}"
        with launched(
            thinker=[*options, "--port", str(port)], performer=options, url=url, token=None
        ) as pair:
            pair.wait_ready(stop)
            return _generate(FilmServer(url), request, args, stop)
    except ClientError as error:
        say(f"generate: {error}")
        return error.exit_code
    except ChildEndedError as ended:
        if ended.status:
            say(f"generate: {ended.status}")
        return ended.exit_code


def _request(args: argparse.Namespace) -> dict[str, Any]:
    request: dict[str, Any] = {"seed": args.seed}
    if args.fps is not None:
        request["fps"] = args.fps
    if args.prompt:
        return request | {"prompt": args.prompt, "num_frames": args.frames}
    return request | {"scenes": [{"prompt": scene, "num_frames": args.frames} for scene in args.scene]}


class _StoppedError(Exception):
    """Ctrl-C, or a termination."""


def _generate(
    server: FilmServer, request: dict[str, Any], args: argparse.Namespace, stop: threading.Event
) -> int:
    """Make it with a bar to watch, then save it in its final form."""
    model = server.model()
    frames = args.frames * max(1, len(args.scene))
    columns = (TextColumn("generate:"), BarColumn(), TextColumn("{task.completed}/{task.total} frames"))
    with (
        tempfile.NamedTemporaryFile(suffix=".mp4") as made,
        Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("film", total=frames)
        fragments = 0

        def on_bytes(piece: bytes) -> None:
            nonlocal fragments
            if stop.is_set():
                raise _StoppedError
            made.write(piece)
            fragments += piece.count(b"moof")
            progress.update(bar, completed=min(frames, fragments * model["block_frames"]))

        try:
            server.stream(request, on_bytes, lambda warning: say(f"generate: {warning}"))
        except _StoppedError:
            say("generate: stopped, nothing was saved")
            return 130
        made.flush()
        progress.update(bar, completed=frames)
        finish_file(Path(made.name), args.out)
    rate = args.fps or model["fps"]
    say(f"generate: saved {args.out}, {frames} frames of {model['size']} at {rate} a second")
    return 0

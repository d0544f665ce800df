"""Start both processes: for a live session, in the browser or with a media file as the user; or for films."""

import argparse
import asyncio
import dataclasses
import os
import threading
import time
import webbrowser
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from client.errors import ClientError
from client.options import ClientOptions, ClientSummary, check_options
from client.run import run_client
from scripts.arguments import add_config_argument, add_link_argument, rank_count, rank_devices
from scripts.output import Subtitles, check_target, say, write_json
from scripts.thinker import add_server_arguments
from shared.config import load_config
from shared.errors import ConfigError
from shared.models.film import makes_films
from shared.processes.launch import ChildEndedError, Deployment, check_port, launched, reachable
from shared.processes.lifetime import on_signals
from shared.processes.model import check_choices
from shared.processes.secret import client_token

EXAMPLES = """\
examples:
  live                                        opens the page: talk with webcam and microphone, or type
  live --text "The weather is lovely today" --seconds 8 --record out.mp4
  live --input me.mp4 --seconds 20 --record out.mp4 --record-both --report r.json
  live --config wan-pocket                    makes films from text, in the browser and over HTTP

exit codes: 0 done, 1 something failed, 2 wrong arguments, config or input file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    add_config_argument(parser)
    add_link_argument(parser)
    add_server_arguments(parser)
    parser.add_argument(
        "--device", default="cpu", help="of the Thinker: cpu, cuda:N or xpu:N (default %(default)s)"
    )
    parser.add_argument(
        "--performer-device", metavar="DEVICE",
        help="of the Performer, or of each of its ranks with commas (default: as --device)",
    )  # fmt: skip
    parser.add_argument(
        "--performer-ranks", type=rank_count, default=1, metavar="N",
        help="let N processes share the Performer's work (default %(default)s)",
    )  # fmt: skip
    user = parser.add_argument_group("the user's part without a browser")
    user.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="any audio, video or picture file plays the user in real time",
    )
    user.add_argument(
        "--text",
        action="append",
        default=[],
        metavar="TEXT",
        help="typed when the session starts; again for more lines",
    )
    user.add_argument(
        "--seconds", type=float, metavar="N", help="length of the session (default: that of the input)"
    )
    user.add_argument("--record", type=Path, metavar="OUT.mp4", help="record the agent's picture and sound")
    user.add_argument("--record-both", action="store_true", help="record the user beside the agent too")
    parser.add_argument("--report", type=Path, metavar="OUT.json", help="write what was measured")
    parser.add_argument(
        "--no-browser", action="store_true", help="don't open the page, only print its address"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    began = time.monotonic()
    stop = threading.Event()
    on_signals(stop.set)
    try:
        _check(args)
        options = _client_options(args)
        if options is not None:
            check_options(options)
        with _launched(args) as pair:
            say(f"live: starting the thinker and the performer with {args.config}")
            pair.wait_ready(stop)
            ready_s, films = time.monotonic() - began, makes_films(load_config(args.config).family)
            what = "films are made" if films else "the agent is"
            say(f"live: ready after {ready_s:.1f} s, link {pair.report()['link']}, {what} at {pair.url}")
            if options is None:
                return _hold_open(args, pair, stop)
            connected = time.monotonic() - began
            summary = asyncio.run(_talk(options, stop))
            return _finish(args, pair, summary, connected)
    except ClientError as error:
        say(f"live: {error}")
        return error.exit_code
    except ChildEndedError as ended:
        if ended.status:
            say(f"live: {ended.status}")
        return ended.exit_code


def _check(args: argparse.Namespace) -> None:
    """Better to know before two models are loaded."""
    devices = rank_devices(args.performer_device or args.device, args.performer_ranks)
    config = load_config(args.config)
    if makes_films(config.family) and (given := _given_of_user(args)):
        raise ConfigError(
            f"{given} is for live sessions, and {config.name} makes films; `generate` makes one and saves it"
        )
    check_choices(config, args.link, args.device, *devices, ranks=args.performer_ranks)
    if args.report is not None:
        check_target(args.report)
    args.token = client_token(args.token_file, args.token)
    args.port = check_port(args.host, args.port)


def _given_of_user(args: argparse.Namespace) -> str | None:
    """The first option that was given of those that stand for a user."""
    names = ("input", "text", "seconds", "record", "record_both")
    return next((f"--{name.replace('_', '-')}" for name in names if getattr(args, name)), None)


def _launched(args: argparse.Namespace) -> AbstractContextManager[Deployment]:
    both = _options(args, "config", "link")
    ranks = "--ranks", str(args.performer_ranks), "--device", args.performer_device or args.device
    return launched(
        thinker=[*both, *_options(args, "host", "port", "pacing", "seed", "device", "allow_origin")],
        performer=[*both, *ranks],
        url=f"http://{reachable(args.host)}:{args.port}",
        token=args.token,
    )


def _options(args: argparse.Namespace, *names: str) -> list[str]:
    """The given options as a command line has them; what was not given is left out."""
    line = []
    for name in names:
        value = getattr(args, name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                line += [f"--{name.replace('_', '-')}", str(each)]
    return line


def _client_options(args: argparse.Namespace) -> ClientOptions | None:
    """What the client of this process is told; None when the user comes through the page."""
    given = (args.input, args.text or None, args.seconds, args.record, args.record_both or None)
    if all(each is None for each in given):
        return None
    seconds = args.seconds
    if seconds is None and args.input is None:
        seconds = 8.0 + 0.1 * sum(map(len, args.text))
    return ClientOptions(
        url=f"{reachable(args.host)}:{args.port}", token=args.token, input=args.input,
        texts=tuple(args.text), seconds=seconds, record=args.record, record_both=args.record_both,
    )  # fmt: skip


async def _talk(options: ClientOptions, stop: threading.Event) -> ClientSummary:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        with suppress(RuntimeError):  # the talk is over already
            loop.call_soon_threadsafe(over.set)

    on_signals(end)
    told = Subtitles()
    try:
        return await run_client(options, stop=over, on_heard=told.words, on_understood=told.understood)
    finally:
        told.end_line()


def _hold_open(args: argparse.Namespace, pair: Deployment, stop: threading.Event) -> int:
    films = makes_films(load_config(args.config).family)
    page = f"{pair.url}/{'film' if films else ''}" + (f"?token={args.token}" if args.token else "")
    to_do = "make films" if films else "talk"
    if args.token:  # on a browser's command line others could read it
        say(f"live: open {page} in a browser to {to_do}; Ctrl-C ends")
    else:
        if not args.no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(page)
        say(f"live: open {page} in a browser to {to_do}; Ctrl-C ends")
    while not stop.wait(0.5):
        pair.check()
    return _finish(args, pair, None, 0.0)


def _finish(
    args: argparse.Namespace, pair: Deployment, summary: ClientSummary | None, connected_s: float
) -> int:
    """Write the report and say how it went; `connected_s` from the start until the client was let in."""
    if args.report is not None and makes_films(load_config(args.config).family):
        write_json(args.report, pair.report())
        say(f"live: wrote {args.report}")
        return 0
    if args.report is not None:
        report = pair.report() | {"av_skew_ms": None, "time_to_first_unit_s": None}
        report |= {"text": "", "heard": [], "conversation": []}  # of this command's own client alone
        if summary is not None:
            report |= {
                "av_skew_ms": summary.av_skew_ms, "text": summary.said.strip(), "heard": summary.understood,
                "conversation": summary.conversation, "client": dataclasses.asdict(summary),
            }  # fmt: skip
            if summary.first_unit_s is not None:
                report["time_to_first_unit_s"] = round(connected_s + summary.first_unit_s, 3)
        write_json(args.report, report)
        say(f"live: wrote {args.report}")
    if summary is not None:
        lost = f", {summary.gaps} missing" if summary.gaps else ""
        say(f"live: {summary.ended}, {summary.units} units{lost}")
        if summary.record:
            say(f"live: recorded {summary.record}")
    return 0

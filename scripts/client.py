"""Talk to a running Thinker from the terminal: webcam, microphone, window, loudspeaker, or a media file."""

import argparse
import asyncio
import contextlib
import dataclasses
import logging
import signal
import sys
from pathlib import Path

from client.devices import DEFAULT, list_devices
from client.errors import ClientError, UsageError
from client.options import ClientOptions, ClientSummary, check_options
from client.run import run_client
from scripts.arguments import add_token_arguments
from scripts.output import Subtitles, check_target, write_json
from shared.processes.secret import client_token

DEFAULT_URL = "127.0.0.1:8765"
OFF = "off"

DESCRIPTION = """\
Talk to a running agent. Without options your webcam and microphone are what it sees and hears, and it
answers in a window and through your loudspeaker (use headphones: there is no echo canceller). What is
missing is left out with a warning. q or Esc in the window, or Ctrl-C, ends the session.
"""

EXAMPLES = """\
examples:
  client                                      webcam, microphone, window, loudspeaker
  client --url 10.0.0.5:8765 --token-file T   a server elsewhere
  client --camera off --speaker HDMI          no camera, sound to the first device with HDMI in its name
  client --input me.mp4 --record out.mp4      no devices: the file plays your part, the answer is recorded
  client --input photo.jpg --text "hello" --seconds 10 --record out.mp4 --record-both
  client --list-devices                       what --camera, --microphone and --speaker can be

exit codes: 0 done, 1 the session failed, 2 wrong arguments (a broken input file or a refused token too)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--url",
        default=DEFAULT_URL,
        help="the server: HOST:PORT, http://HOST:PORT or ws://HOST:PORT/PATH (default %(default)s)",
    )
    add_token_arguments(parser)
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="any audio, video or picture file plays your part in real time; no device is opened",
    )
    parser.add_argument(
        "--text",
        action="append",
        default=[],
        metavar="TEXT",
        help="typed by you when the session starts; give it again for more lines",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="end after N seconds of your part (default: when the input file ends; without one, never)",
    )
    parser.add_argument("--record", type=Path, metavar="OUT.mp4", help="record the agent's picture and sound")
    parser.add_argument("--record-both", action="store_true", help="record yourself beside the agent too")
    parser.add_argument(
        "--report", type=Path, metavar="OUT.json", help="write what the client measured and heard"
    )
    parser.add_argument("--camera", metavar="N", help=f"camera number or address, or {OFF} (default 0)")
    parser.add_argument(
        "--microphone", metavar="NAME", help=f"number or part of a name, or {OFF} (default: the system's)"
    )
    parser.add_argument(
        "--speaker", metavar="NAME", help=f"number or part of a name, or {OFF} (default: the system's)"
    )
    parser.add_argument(
        "--window",
        action=argparse.BooleanOptionalAction,
        help="show the agent in a window (default: yes, unless --input is given)",
    )
    parser.add_argument("--list-devices", action="store_true", help="list cameras and sound devices, and end")


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if args.list_devices:
        print("\n".join(list_devices()))
        return 0
    try:
        options = options_from(args)
        check_options(options)
        if args.report is not None:
            check_target(args.report)
        summary = asyncio.run(_until_signal(options))
        if args.report is not None:
            write_json(args.report, dataclasses.asdict(summary))
    except ClientError as error:
        print(f"client: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # the second Ctrl-C: the user does not want to wait
        return 1
    _tell(summary)
    return 0


def options_from(args: argparse.Namespace) -> ClientOptions:
    """The client's options for parsed arguments.

    Raises:
        UsageError: when they contradict each other or a value is out of range.
    """
    headless = args.input is not None
    if headless and (args.camera or args.microphone):
        raise UsageError("--input plays your part: it can't go with --camera or --microphone")
    return ClientOptions(
        url=args.url,
        token=client_token(args.token_file, args.token),
        input=args.input,
        texts=tuple(args.text),
        seconds=args.seconds,
        record=args.record,
        record_both=args.record_both,
        camera=_device(args.camera, None if headless else "0"),
        microphone=_device(args.microphone, None if headless else DEFAULT),
        speaker=_device(args.speaker, None if headless else DEFAULT),
        window=not headless if args.window is None else args.window,
    )


def _device(named: str | None, default: str | None) -> str | None:
    return default if named is None else None if named == OFF else named


async def _until_signal(options: ClientOptions) -> ClientSummary:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    numbers = [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] if sys.platform != "win32" else []

    def end() -> None:
        stop.set()
        for number in numbers:  # a second one is not to be ignored
            loop.remove_signal_handler(number)

    with contextlib.suppress(NotImplementedError):  # Windows
        for number in numbers:
            loop.add_signal_handler(number, end)
    told = Subtitles()
    try:
        return await run_client(options, stop=stop, on_heard=told.words, on_understood=told.understood)
    finally:
        told.end_line()


def _tell(summary: ClientSummary) -> None:
    lost = f", {summary.gaps} missing" if summary.gaps else ""
    dry = f", {summary.underruns} underruns" if summary.underruns else ""
    print(
        f"{summary.ended}: {summary.seconds:.1f} s, {summary.units} units heard{lost}{dry}", file=sys.stderr
    )
    if summary.record:
        print(f"recorded {summary.record}", file=sys.stderr)

"""Start both processes and hold a live session: in the browser, or with a media file as the user."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import httpx

from client.errors import ClientError
from client.options import ClientOptions, ClientSummary, check_options
from client.run import run_client
from scripts.common import (
    PARENT,
    add_config_argument,
    add_link_argument,
    check_choices,
    check_target,
    on_signals,
    write_json,
)
from scripts.thinker import add_server_arguments
from shared.config import load_config
from shared.errors import AddressError, RuntimeFault
from shared.memory import rss_mb

READY_WITHIN_S = 120.0
END_WITHIN_S = 8.0
EXAMPLES = """\
examples:
  live                                        opens the page: talk with webcam and microphone, or type
  live --text "The weather is lovely today" --seconds 8 --record out.mp4
  live --input me.mp4 --seconds 20 --record out.mp4 --record-both --report r.json

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
        "--performer-device", metavar="DEVICE", help="of the Performer (default: as --device)"
    )
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
        with _pair(args) as pair:
            pair.wait_ready(stop)
            _say(f"live: the agent is at {pair.url}")
            if options is None:
                return _hold_open(args, pair, stop)
            connected = time.monotonic() - began
            summary = asyncio.run(_talk(options, stop))
            return _finish(args, pair, summary, connected)
    except ClientError as error:
        _say(f"live: {error}")
        return error.exit_code
    except _ChildEndedError as ended:
        return ended.exit_code


def _check(args: argparse.Namespace) -> None:
    """Better to know before two models are loaded."""
    check_choices(load_config(args.config), args.link, args.device, args.performer_device or args.device)
    if args.report is not None:
        check_target(args.report)
    try:
        if args.port == 0:
            args.port = _free_port(args.host)
        _listener(args.host, args.port).close()
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise AddressError(f"can't listen on {args.host}:{args.port}: {why}; see --host and --port") from None


def _say(line: str, *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print, to stderr if nothing else is said. Where the terminal is gone there is nobody left to tell."""
    with suppress(OSError):
        print(line, end=end, file=file or sys.stderr, flush=True)


def _client_options(args: argparse.Namespace) -> ClientOptions | None:
    """What the client of this process is told; None when the user comes through the page."""
    wishes = (args.input, args.text or None, args.seconds, args.record, args.record_both or None)
    if all(wish is None for wish in wishes):
        return None
    seconds = args.seconds
    if seconds is None and args.input is None:
        seconds = 8.0 + 0.1 * sum(map(len, args.text))
    return ClientOptions(
        url=f"{_reachable(args.host)}:{args.port}", token=args.token, input=args.input,
        texts=tuple(args.text), seconds=seconds, record=args.record, record_both=args.record_both,
    )  # fmt: skip


def _reachable(host: str) -> str:
    """An address to call a server at that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host


class _ChildEndedError(Exception):
    """Thinker or Performer ended by itself and has said why; its exit code becomes ours."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """The two processes."""

    thinker: subprocess.Popen[bytes]
    performer: subprocess.Popen[bytes]
    url: str
    token: str | None

    def wait_ready(self, stop: threading.Event) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not stop.wait(0.05):
            self.check()
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2, trust_env=False).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeFault(f"the pair was not ready within {READY_WITHIN_S:.0f} s")
        raise _ChildEndedError(130)

    def check(self) -> None:
        for name, process in (("thinker", self.thinker), ("performer", self.performer)):
            code = process.poll()
            if code is not None:
                if code < 0:
                    _say(f"live: the {name} was ended by signal {-code}")
                raise _ChildEndedError(code if code > 0 else 1)

    def report(self) -> dict[str, object]:
        query = {"token": self.token} if self.token else {}
        answer = httpx.get(f"{self.url}/report", params=query, timeout=10, trust_env=False)
        report: dict[str, object] = answer.raise_for_status().json()
        report["rss_mb"] = {"thinker": rss_mb(self.thinker.pid), "performer": rss_mb(self.performer.pid)}
        return report


@contextmanager
def _pair(args: argparse.Namespace) -> Iterator[_Pair]:
    """Both processes, in a group of their own so that Ctrl-C reaches this launcher alone; ended when left."""
    common = [
        "--config",
        args.config,
        "--link",
        args.link,
        "--rendezvous",
        f"127.0.0.1:{_free_port('127.0.0.1')}",
    ]
    server = [
        "--host",
        args.host,
        "--port",
        str(args.port),
        "--pacing",
        args.pacing,
        "--seed",
        str(args.seed),
    ]
    if args.token:
        server += ["--token", args.token]
    performer_device = args.performer_device or args.device
    thinker = _start("thinker", *common, *server, "--device", args.device)
    performer = _start("performer", *common, "--device", performer_device)
    try:
        url = f"http://{_reachable(args.host)}:{args.port}"
        yield _Pair(thinker=thinker, performer=performer, url=url, token=args.token)
    finally:
        for process in (thinker, performer):
            process.terminate()
        _end((thinker, performer))


def _start(*command: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {PARENT: str(os.getpid())}
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.main", *command],
        env=environment,
        process_group=0,
        stdin=subprocess.DEVNULL,
    )


def _end(processes: tuple[subprocess.Popen[bytes], ...]) -> None:
    deadline = time.monotonic() + END_WITHIN_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def _free_port(host: str) -> int:
    with _listener(host, 0) as listener:
        return int(listener.getsockname()[1])


async def _talk(options: ClientOptions, stop: threading.Event) -> ClientSummary:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        loop.call_soon_threadsafe(over.set)

    on_signals(end)
    return await run_client(options, stop=over, on_heard=lambda text: _say(text, end="", file=sys.stdout))


def _hold_open(args: argparse.Namespace, pair: _Pair, stop: threading.Event) -> int:
    page = f"{pair.url}/" + (f"?token={args.token}" if args.token else "")
    if not args.no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(page)
    _say("live: open it in a browser to talk; Ctrl-C ends")
    while not stop.wait(0.5):
        pair.check()
    return _finish(args, pair, None, 0.0)


def _finish(args: argparse.Namespace, pair: _Pair, summary: ClientSummary | None, connected_s: float) -> int:
    """Write the report and say how it went; `connected_s` from the start until the client was let in."""
    if args.report is not None:
        report = pair.report() | {"av_skew_ms": None, "time_to_first_unit_s": None}
        if summary is not None:
            report |= {"av_skew_ms": summary.av_skew_ms, "client": dataclasses.asdict(summary)}
            if summary.first_unit_s is not None:
                report["time_to_first_unit_s"] = round(connected_s + summary.first_unit_s, 3)
        write_json(args.report, report)
        _say(f"live: wrote {args.report}")
    if summary is not None:
        lost = f", {summary.gaps} missing" if summary.gaps else ""
        _say(f"\nlive: {summary.ended}, {summary.units} units{lost}")
        if summary.record:
            _say(f"live: recorded {summary.record}")
    return 0

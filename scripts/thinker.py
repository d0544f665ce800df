"""Start the Thinker: serves the page and WebSocket clients as soon as its Performer has joined."""

import argparse
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from scripts.arguments import add_process_arguments, add_token_arguments, port_number, seed_number
from scripts.output import check_target, write_json
from shared.config import load_config
from shared.processes.lifetime import begin_process, stop_event
from shared.processes.model import check_choices
from shared.processes.secret import check_different, client_token, process_secret
from thinker.engine.running_session import Pacing
from thinker.process import ThinkerProcess

DEFAULT_PORT = 8765
EXAMPLES = """\
examples:
  thinker                                     and in a second terminal: performer
  thinker --rendezvous 0.0.0.0:8764 --host 0.0.0.0 --token-file TOKEN
"""


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the served port and of the sessions."""
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default %(default)s)")
    parser.add_argument(
        "--port", type=port_number, default=DEFAULT_PORT,
        help="port to serve on, 0 for any that is free (default %(default)s)",
    )  # fmt: skip
    add_token_arguments(parser)
    parser.add_argument(
        "--allow-origin", type=web_origin, action="append", default=[], metavar="ORIGIN",
        help="let pages of this origin connect and take its host for a name of this server, such as"
        " https://example.org; again for more",
    )  # fmt: skip
    parser.add_argument(
        "--pacing", choices=[pacing.value for pacing in Pacing], default=Pacing.EAGER.value,
        help="decode a unit when it is solved, or at the next tick like Wan-Streamer (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed_number, default=0, help="of all randomness (default %(default)s)")


def web_origin(text: str) -> str:
    """What a browser sends as a page's origin: scheme, host, and the port where it isn't the usual one."""
    parts = urlsplit(text.lower())
    bare = parts.hostname and parts._replace(path="", query="", fragment="") == parts
    if parts.scheme not in {"http", "https"} or not bare:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST[:PORT] or https://HOST[:PORT]")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    add_process_arguments(parser)
    add_server_arguments(parser)
    parser.add_argument("--report", type=Path, metavar="OUT.json", help="write the report when ending")


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    begin_process("thinker", debug=args.debug)
    stop = stop_event()
    config = load_config(args.config)
    check_choices(config, args.link, args.device)
    if args.report is not None:
        check_target(args.report)
    secret, token = process_secret(args.secret_file), client_token(args.token_file, args.token)
    check_different(secret, token)
    process = ThinkerProcess(
        config=config, device=args.device, rendezvous=args.rendezvous, link=args.link, host=args.host,
        port=args.port, secret=secret, token=token, allow_origins=args.allow_origin,
        pacing=Pacing(args.pacing), seed=args.seed, checked=args.debug,
    )  # fmt: skip
    code, report = process.run(stop)
    if args.report is not None:
        write_json(args.report, msgspec.to_builtins(report))
    return code

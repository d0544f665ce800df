"""Start the Performer: joins its Thinker, then makes the agent's picture and sound until the Thinker ends."""

import argparse
import os

from performer.process import PerformerProcess, follow
from scripts.arguments import add_process_arguments, port_number, rank_count, rank_devices
from shared.config import load_config
from shared.processes.lifetime import begin_process, stop_event
from shared.processes.model import check_choices
from shared.processes.secret import TOKEN_VARIABLE, process_secret

EXAMPLES = """\
examples:
  performer                                   joins the Thinker of this machine
  performer --rendezvous 10.0.0.5:8764 --link gloo --device cuda:0
  performer --ranks 2 --device cuda:0,cuda:1  two devices share the work of each unit
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    add_process_arguments(parser)
    parser.add_argument(
        "--ranks", type=rank_count, default=1, metavar="N",
        help="solve with N processes of this host, each with its share of the model; --device then names as"
        " many devices, with commas (default %(default)s)",
    )  # fmt: skip
    # What the first rank starts the others with.
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--group", type=port_number, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    if args.rank:
        begin_process(f"performer rank {args.rank}", debug=args.debug)
        config = load_config(args.config)
        return follow(config, args.device, rank=args.rank, ranks=args.ranks, port=args.group)
    begin_process("performer", debug=args.debug)
    os.environ.pop(TOKEN_VARIABLE, None)  # of clients: no rank needs it
    stop = stop_event()
    config = load_config(args.config)
    devices = rank_devices(args.device, args.ranks)
    check_choices(config, args.link, *devices, ranks=args.ranks)
    process = PerformerProcess(
        config=config, devices=devices, rendezvous=args.rendezvous, link=args.link,
        secret=process_secret(args.secret_file), checked=args.debug, stop=stop,
    )  # fmt: skip
    if args.ranks == 1:
        return process.run()

    def rank_command(rank: int, port: int) -> list[str]:
        debug = ["--debug"] if args.debug else []
        return [
            "performer", "--config", args.config, "--device", devices[rank], "--ranks", str(args.ranks),
            "--rank", str(rank), "--group", str(port), *debug,
        ]  # fmt: skip

    return process.lead(rank_command)

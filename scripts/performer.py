"""Start the Performer: joins its Thinker, then makes the agent's picture and sound until the Thinker ends."""

from __future__ import annotations

import argparse
import logging

from performer.loop import perform
from scripts.common import (
    add_process_arguments,
    begin_process,
    check_choices,
    load_model,
    stop_event,
    terms_of,
)
from shared.config import load_config
from shared.errors import RendezvousError
from shared.rendezvous import join_thinker

EXAMPLES = """\
examples:
  performer                                   joins the Thinker of this machine
  performer --rendezvous 10.0.0.5:8764 --link gloo --device cuda:0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its options to a parser."""
    parser.description = __doc__
    parser.epilog = EXAMPLES
    add_process_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the options say; returns the exit code."""
    begin_process("performer", debug=args.debug)
    stop = stop_event()
    config = load_config(args.config)
    check_choices(config, args.link, args.device)
    family = load_model(config, args.device)
    host, port = args.rendezvous
    try:
        link = join_thinker(host, port, terms_of(family, config, args.link), stop=stop)
    except RendezvousError:
        if stop.is_set():
            return 0
        raise
    with link:
        perform(family, link, stopping=stop.is_set, checked=args.debug)
    if stop.is_set():
        return 0
    logging.getLogger(__name__).info("the thinker has ended")
    return 1

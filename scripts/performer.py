"""Start the Performer: joins its Thinker, then makes the agent's picture and sound until the Thinker ends."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable
from typing import Any

from performer.broadcast import following, leading
from performer.group import Group, join_store, open_store
from performer.loop import Ends, perform
from scripts.children import end, how_it_ended, start
from scripts.common import (
    add_process_arguments,
    begin_process,
    check_choices,
    handshake_params,
    load_model,
    port_number,
    rank_count,
    rank_devices,
    stop_event,
)
from shared.config import RuntimeConfig, load_config
from shared.devices import check_device, claim_core
from shared.errors import GroupError, RendezvousError
from shared.links.base import LinkEnd
from shared.models.family import Family, Role
from shared.rendezvous import join_thinker

log = logging.getLogger(__name__)

LOADED = "loaded"
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
        return _follow(args)
    begin_process("performer", debug=args.debug)
    stop = stop_event()
    config = load_config(args.config)
    devices = rank_devices(args.device, args.ranks)
    check_choices(config, args.link, *devices, ranks=args.ranks)
    if args.ranks > 1:
        return _lead(args, config, devices, stop)
    return _serve(args, config, load_model(config, devices[0], Role.PERFORMER), stop, lambda link: link)


def _serve(
    args: argparse.Namespace,
    config: RuntimeConfig,
    family: Family[Any, Any],
    stop: threading.Event,
    ends_of: Callable[[LinkEnd], Ends],
) -> int:
    host, port = args.rendezvous
    try:
        device = rank_devices(args.device, args.ranks)[0]
        link = join_thinker(host, port, handshake_params(family, config, args.link, device), stop=stop)
    except RendezvousError:
        if stop.is_set():
            return 0
        raise
    with link, claim_core("performer", config.pin):
        perform(
            family,
            ends_of(link),
            slots=config.sessions,
            stopping=stop.is_set,
            remembers=config.remember == "performer",
            checked=args.debug,
        )
    if stop.is_set():
        return 0
    log.info("the thinker has ended")
    return 1


def _lead(args: argparse.Namespace, config: RuntimeConfig, devices: list[str], stop: threading.Event) -> int:
    """The first rank: starts the others, and talks to the Thinker for all of them."""
    store = open_store()
    followers = _Followers(args, devices, store.port)
    try:
        group = Group(store, rank=0, ranks=args.ranks, within_s=_group_patience(config), fate=followers.fate)
        if not group.await_all("here", stop):
            return 0
        group.meet(check_device(devices[0])[0])
        family = load_model(config, devices[0], Role.PERFORMER, group.share)
        group.announce(LOADED)
        if not group.await_all(LOADED, stop):
            return 0
        log.info("%d ranks are there", args.ranks)
        return _serve(args, config, family, stop, lambda link: leading(link, group))
    finally:
        followers.end()


def _follow(args: argparse.Namespace) -> int:
    """Another rank. Its leader tells what goes wrong with the group, so this one leaves without a word."""
    begin_process(f"performer rank {args.rank}", debug=args.debug)
    config = load_config(args.config)
    group = Group(join_store(args.group), rank=args.rank, ranks=args.ranks, within_s=_group_patience(config))
    try:
        group.meet(check_device(args.device)[0])
        family = load_model(config, args.device, Role.PERFORMER, group.share)
        group.announce(LOADED)
        ends = following(group, family.latent_bytes)
        with claim_core(f"performer rank {args.rank}", config.pin):
            perform(family, ends, slots=config.sessions, stopping=lambda: False)
    except GroupError as error:
        log.debug("%s", error)
    return 0


def _group_patience(config: RuntimeConfig) -> float:
    """Half of the Thinker's: when it gives up on a unit, the group has told why already."""
    return config.solve_timeout_s / 2


class _Followers:
    """The other ranks, as children of this process."""

    def __init__(self, args: argparse.Namespace, devices: list[str], port: int) -> None:
        debug = ["--debug"] if args.debug else []
        self._processes = {
            rank: start(
                "performer", "--config", args.config, "--device", devices[rank], "--ranks", str(args.ranks),
                "--rank", str(rank), "--group", str(port), *debug,
            )
            for rank in range(1, args.ranks)
        }  # fmt: skip

    def fate(self) -> str | None:
        """Which of them has ended, and how: one that others have left because of comes first."""
        ended = {rank: code for rank, each in self._processes.items() if (code := each.poll()) is not None}
        for rank, code in sorted(ended.items(), key=lambda item: item[1] == 0):
            return f"rank {rank} {how_it_ended(code)}"
        return None

    def end(self) -> None:
        """End all that still live."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            end(process)

"""Start the Thinker: serves the page and WebSocket clients as soon as its Performer has joined."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from scripts.common import (
    add_process_arguments,
    begin_process,
    check_choices,
    handshake_params,
    load_model,
    port_number,
    seed_number,
    stop_event,
)
from scripts.output import check_target, write_json
from shared.chunking import ChunkMode, Rememberer
from shared.config import load_config
from shared.errors import RendezvousError
from shared.links.base import LinkEnd
from shared.models.family import Role
from shared.rendezvous import HandshakeParams, RendezvousListener, accept_performer
from thinker.engine.engine import EngineOptions, ThinkerEngine
from thinker.engine.pipeline import PipelineOptions
from thinker.engine.running_session import Pacing
from thinker.server.app import build_app, serve

log = logging.getLogger(__name__)

DEFAULT_PORT = 8765
EXAMPLES = """\
examples:
  thinker                                     and in a second terminal: performer
  thinker --rendezvous 0.0.0.0:8764 --link gloo --host 0.0.0.0 --token SECRET
"""


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the served port and of the sessions."""
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default %(default)s)")
    parser.add_argument(
        "--port", type=port_number, default=DEFAULT_PORT,
        help="port to serve on, 0 for any that is free (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--token", type=secret, help="a secret that clients must bring")
    parser.add_argument(
        "--allow-origin", type=web_origin, action="append", default=[], metavar="ORIGIN",
        help="let pages of this origin connect and take its host for a name of this server, such as"
        " https://example.org; again for more",
    )  # fmt: skip
    parser.add_argument(
        "--pacing", choices=[pacing.value for pacing in Pacing], default=Pacing.EAGER.value,
        help="decode a unit when it is solved, or at the next tick as the paper does (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed_number, default=0, help="of all randomness (default %(default)s)")


def secret(text: str) -> str:
    """A token. An empty one would be an open server that looks like a closed one."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out for an open server")
    return text


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
    family = load_model(config, args.device, Role.THINKER)
    terms = handshake_params(family, config, args.link, args.device)
    options = EngineOptions(
        model=config.name, seed=args.seed, pin=config.pin,
        pipeline=PipelineOptions(
            slots=config.sessions, phases=config.phases, pacing=Pacing(args.pacing),
            exchange=ChunkMode(config.exchange), rememberer=Rememberer(config.remember),
            checked=args.debug, solve_timeout_s=config.solve_timeout_s,
        ),
    )  # fmt: skip
    with RendezvousListener(*args.rendezvous) as listener:
        engine = ThinkerEngine(family, lambda: _join(listener, terms, stop), options)
        return asyncio.run(_serve(args, engine, stop))


def _join(listener: RendezvousListener, terms: HandshakeParams, stop: threading.Event) -> LinkEnd | None:
    """The link to the Performer, however long it takes to come; None when told to stop."""
    try:
        with listener:  # there is one Performer: a second one shall not wait for an answer
            return accept_performer(listener, terms, stop=stop)
    except RendezvousError:
        if stop.is_set():
            return None
        raise


async def _serve(args: argparse.Namespace, engine: ThinkerEngine, stop: threading.Event) -> int:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def think() -> None:
        try:
            engine.run()
        finally:
            loop.call_soon_threadsafe(over.set)

    def watch() -> None:
        stop.wait()
        with contextlib.suppress(RuntimeError):  # all is over already
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    model = threading.Thread(target=think, name="model")
    model.start()
    app = build_app(engine, host=args.host, token=args.token, allow_origins=args.allow_origin)
    try:
        await serve(app, host=args.host, port=args.port, stop=over, listening=lambda port: _tell(args, port))
    finally:
        asked_to = stop.is_set()
        stop.set()  # the model thread may still be waiting for its Performer
        engine.stop()
        await asyncio.to_thread(model.join)
        if args.report is not None:
            write_json(args.report, msgspec.to_builtins(app.state.manager.report()))
    return 0 if asked_to and engine.fault is None else 1


def _tell(args: argparse.Namespace, port: int) -> None:
    log.info("serving on http://%s:%d", f"[{args.host}]" if ":" in args.host else args.host, port)

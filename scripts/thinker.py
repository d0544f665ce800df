"""Start the Thinker: waits for its Performer, then serves the page and WebSocket clients."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import threading
from pathlib import Path

from scripts.common import add_process_arguments, begin_process, load_model, stop_event, terms_of
from shared.config import load_config
from shared.errors import RendezvousError
from shared.rendezvous import Listener, accept_performer
from thinker.engine import EngineOptions, ThinkerEngine
from thinker.pipeline import Pacing
from thinker.server import build_app, serve

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
        "--port", type=int, default=DEFAULT_PORT, help="port to serve on (default %(default)s)"
    )
    parser.add_argument("--token", help="a secret that clients must bring")
    parser.add_argument(
        "--pacing", choices=[pacing.value for pacing in Pacing], default=Pacing.EAGER.value,
        help="decode a unit when it is solved, or at the next tick as the paper does (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of all randomness (default %(default)s)")


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
    family = load_model(config, args.device)
    try:
        with Listener(*args.rendezvous) as listener:
            link = accept_performer(listener, terms_of(family, config, args.link), stop=stop)
    except RendezvousError:
        if stop.is_set():
            return 0
        raise
    options = EngineOptions(model=config.name, seed=args.seed, pacing=Pacing(args.pacing), checked=args.debug)
    with link:
        return asyncio.run(_serve(args, ThinkerEngine(family, link, options), stop))


async def _serve(args: argparse.Namespace, engine: ThinkerEngine, stop: threading.Event) -> int:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def think() -> None:
        engine.run()
        loop.call_soon_threadsafe(over.set)

    def watch() -> None:
        stop.wait()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    model = threading.Thread(target=think, name="model")
    model.start()
    app = build_app(engine, token=args.token)
    try:
        await serve(app, host=args.host, port=args.port, stop=over, listening=lambda port: _tell(args, port))
    finally:
        engine.stop()
        await asyncio.to_thread(model.join)
        if args.report is not None:
            args.report.write_text(json.dumps(app.state.hall.report(), indent=2) + "\n", encoding="utf-8")
    return 1 if engine.fault else 0


def _tell(args: argparse.Namespace, port: int) -> None:
    log.info("serving on http://%s:%d", f"[{args.host}]" if ":" in args.host else args.host, port)

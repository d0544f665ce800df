"""What the two process commands share: addresses, logging, threads, signals, the model."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from shared.chunking import ChunkMode, Rememberer, largest_messages
from shared.config import DEFAULT, RuntimeConfig, shipped_configs
from shared.devices import check_device, open_device, settle_threads
from shared.errors import ConfigError
from shared.links.base import LinkShape
from shared.links.choose import check_link
from shared.memory import retain_heap, trim_heap
from shared.models.family import Builder, Family, Role, model_builder
from shared.models.tensor_parallel import WHOLE, ShardSpec
from shared.parent import die_with_parent
from shared.rendezvous import HandshakeParams

DEFAULT_RENDEZVOUS = "127.0.0.1:8764"
PARENT = "THINKER_PERFORMER_PARENT"  # set by `live`, so that its children end with it
MAX_SEED = 2**31 - 1
SWITCH_INTERVAL_S = 0.001  # the event loop gets the interpreter back from the model thread this soon


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that Thinker and Performer must agree on, and the device."""
    add_config_argument(parser)
    parser.add_argument(
        "--rendezvous", default=DEFAULT_RENDEZVOUS, metavar="HOST:PORT", type=address,
        help="where the Thinker listens for the Performer; start the two in any order (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or xpu:N (default %(default)s)")
    add_link_argument(parser)
    parser.add_argument("--debug", action="store_true", help="log more, and check a checksum of every slice")


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """The model."""
    parser.add_argument(
        "--config", default=DEFAULT, metavar="FILE|NAME",
        help=f"a .toml file or one of: {', '.join(shipped_configs())} (default %(default)s)",
    )  # fmt: skip


def add_link_argument(parser: argparse.ArgumentParser) -> None:
    """The exchange."""
    parser.add_argument(
        "--link", default="auto",
        help="how slices and latents travel: shm, gloo, ccl, xccl, nccl, or auto (xccl or nccl between GPUs"
        " of one kind, else shm on one host, else gloo)",
    )  # fmt: skip


def address(text: str) -> tuple[str, int]:
    """HOST:PORT as a pair; [::1]:8764 for IPv6."""
    host, _, port = text.rpartition(":")
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), port_number(port)


def port_number(text: str) -> int:
    """A TCP port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def seed_number(text: str) -> int:
    """A seed of sessions, which units are added to within 64 bits."""
    if not text.isdigit() or int(text) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MAX_SEED}")
    return int(text)


def rank_count(text: str) -> int:
    """A number of Performer ranks."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def rank_devices(devices: str, ranks: int) -> list[str]:
    """The device of each rank: one of a list, or the CPU for all.

    Raises:
        ConfigError: they are not as many as there are ranks, or not alike.
    """
    each = devices.split(",")
    if each == ["cpu"]:
        return each * ranks
    kinds = {device.partition(":")[0] for device in each}
    if len(set(each)) != ranks or len(each) != ranks or len(kinds) > 1:
        raise ConfigError(
            f"--device {devices}: {ranks} ranks need as many of one kind, such as cuda:0,cuda:1"
        )
    return each


def begin_process(name: str, *, debug: bool) -> None:
    """Logging to stderr, one line each. Under a launcher: warnings alone, and it ends with the launcher."""
    parent = os.environ.pop(PARENT, None)
    level = logging.DEBUG if debug else logging.INFO if parent is None else logging.WARNING
    logging.basicConfig(level=level, format=f"{name}: %(message)s", stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if parent is not None:
        die_with_parent(int(parent))
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on Ctrl-C, termination and hang-up; a second one ends the process at once."""

    def handle(number: int, _frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        logging.getLogger(__name__).debug("signal %d", number)
        stop()

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, handle)


def load_model(
    config: RuntimeConfig, device: str, role: Role = Role.BOTH, share: ShardSpec = WHOLE
) -> Family[Any, Any]:
    """Set up torch for this process and load the model, or what this process needs of it.

    Raises:
        DeviceError: there is no such device.
        ConfigError, CheckpointError: see `load_family`.
    """
    settle_threads(config.threads)
    opened = open_device(device, dtype=config.dtype, compiles=config.compile)
    family = _builder(config, share.ranks)(
        weights=config.weights_folder(), device=opened, role=role, share=share
    )
    trim_heap()
    retain_heap()
    return family


def check_choices(config: RuntimeConfig, link: str, *devices: str, ranks: int = 1) -> None:
    """Refuse what can be refused before a model is loaded or a process started.

    Raises:
        ConfigError: a wrong field in the model's table, or one that `ranks` can't share, an unknown link, or
            what is no device.
        LinkUnavailable, DeviceError: not on this machine.
    """
    _builder(config, ranks)
    if ranks > 1 and config.remember == "performer":
        raise ConfigError(f"config {config.name}: remember={config.remember!r} is not for several ranks")
    for device in devices:
        check_device(device)
        check_link(link, device)


def _builder(config: RuntimeConfig, ranks: int) -> Builder:
    try:
        return model_builder(config.family, config.model, ranks=ranks)
    except ConfigError as error:
        raise ConfigError(f"config {config.name}: {error}") from None


def handshake_params(
    family: Family[Any, Any], config: RuntimeConfig, link: str, device: str = "cpu"
) -> HandshakeParams:
    """What both processes must have in common, and where this one computes."""
    there, back = largest_messages(family, ChunkMode(config.exchange), Rememberer(config.remember))
    shape = LinkShape(
        slice_bytes=there,
        latent_bytes=back,
        # A batch of all sessions and its remembered units can be under way while the Performer works.
        depth=max(config.link_depth, 2 * config.sessions + 2),
    )
    return HandshakeParams(digest=family.digest, shape=shape, link=link, device=device)


def stop_event() -> threading.Event:
    """An event that the signals set."""
    event = threading.Event()
    on_signals(event.set)
    return event

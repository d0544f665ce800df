"""Options that several commands share, and what their values are checked for."""

import argparse
from pathlib import Path

from shared.config import DEFAULT, shipped_configs
from shared.errors import ConfigError

DEFAULT_RENDEZVOUS = "127.0.0.1:8764"
MAX_SEED = 2**31 - 1


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that Thinker and Performer must agree on, and the device."""
    add_config_argument(parser)
    parser.add_argument(
        "--rendezvous", default=DEFAULT_RENDEZVOUS, metavar="HOST:PORT", type=address,
        help="where the Thinker listens for the Performer; start the two in any order (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or xpu:N (default %(default)s)")
    add_link_argument(parser)
    parser.add_argument(
        "--secret-file", type=Path, metavar="FILE",
        help="holds the secret that the processes share (default: THINKER_PERFORMER_SECRET, else a file of"
        " yours that is made on first use; copy it to the other host)",
    )  # fmt: skip
    parser.add_argument("--debug", action="store_true", help="log more, and check a checksum of every slice")


def add_config_argument(parser: argparse.ArgumentParser, default: str = DEFAULT) -> None:
    """The model."""
    parser.add_argument(
        "--config", default=default, metavar="FILE|NAME",
        help=f"a .toml file or one of: {', '.join(shipped_configs())} (default %(default)s)",
    )  # fmt: skip


def add_link_argument(parser: argparse.ArgumentParser) -> None:
    """The exchange."""
    parser.add_argument(
        "--link", default="auto",
        help="how slices and latents travel: shm, gloo, ccl, xccl, nccl, or auto (xccl or nccl between GPUs"
        " of one kind, else shm on one host, else gloo)",
    )  # fmt: skip


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """The token of clients."""
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="holds the token that clients bring (default: THINKER_PERFORMER_TOKEN, else the server is open)",
    )  # fmt: skip
    parser.add_argument(
        "--token", help="the token itself; other users of this machine can read it in the list of processes"
    )


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

"""Which link two processes take, and opening it on both sides. The only module that knows every link."""

import logging
import sys
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from shared.errors import ConfigError, LinkUnavailable
from shared.links.base import LinkEnd, LinkShape
from shared.links.gloo import GlooOffer, join_gloo
from shared.links.peer import Peer
from shared.links.shm import ShmOffer, join_shm

AUTO = "auto"
LINK_NAMES = (AUTO, "shm", "gloo", "ccl", "xccl", "nccl")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What one process brings to the choice."""

    process: str
    """"thinker" or "performer", for messages."""
    link: str
    """A name of LINK_NAMES."""
    host: str
    """Identity of the host's shared memory; equal when two processes can share it."""
    available: tuple[str, ...]
    """Names of links that this process can open."""


class Offer(Protocol):
    """A link that the Thinker has prepared and the Performer has not yet joined."""

    address: str

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        """Wait for the Performer and return the Thinker's end."""
        ...

    def close(self) -> None:
        """Drop what only the set-up needed; before or after `open`."""
        ...


def missing(link: str) -> str | None:
    """What this machine or this version lacks for `link`, in words; None when it can be had."""
    match link:
        case "shm":
            return None if sys.platform == "linux" else "it needs Linux (memfd and eventfd)"
        case "gloo":
            built = dist.is_available() and dist.is_gloo_available()
            return None if built else f"torch {torch.__version__} was built without gloo"
        case "ccl":
            return "it needs a oneCCL process group, which this version does not bring"
        case "xccl":
            return (
                f"it needs Intel GPUs on both sides and a link that this version does not bring ({_build()})"
            )
        case "nccl":
            return (
                f"it needs NVIDIA GPUs on both sides and a link that this version does not bring ({_build()})"
            )
        case _:
            raise ConfigError(f"link: unknown name {link!r}, known are {', '.join(LINK_NAMES)}")


def available_links() -> tuple[str, ...]:
    """Names of the links that this process can open, best first."""
    return tuple(name for name in LINK_NAMES if name != AUTO and missing(name) is None)


def check_link(link: str) -> None:
    """Refuse a name that is unknown or can't be had here; "auto" passes.

    Raises:
        ConfigError: there is no link of that name.
        LinkUnavailable: there is, but not here; the message says what is missing.
    """
    if link != AUTO and (reason := missing(link)) is not None:
        raise LinkUnavailable(f"link {link} is not available: {reason}")


def choose_link(thinker: Wish, performer: Wish) -> str:
    """The link for two processes. An explicit wish is kept or refused, never replaced.

    Raises:
        LinkUnavailable: the wishes differ, or can't be met; the message says on which side and why.
    """
    wishes = {wish.link for wish in (thinker, performer)} - {AUTO}
    if len(wishes) > 1:
        raise LinkUnavailable(
            f"the thinker was started with link {thinker.link}, the performer with {performer.link}"
        )
    if wishes:
        chosen = wishes.pop()
        _check_both_have(chosen, thinker, performer)
        _log.info("link %s, as asked for", chosen)
        return chosen
    same_host = thinker.host == performer.host
    chosen = "shm" if same_host and "shm" in thinker.available and "shm" in performer.available else "gloo"
    _check_both_have(chosen, thinker, performer)
    _log.info(
        "link %s, chosen because the two processes are on %s",
        chosen,
        "one host" if same_host else "two hosts",
    )
    return chosen


def offer_link(link: str, shape: LinkShape, own_host: str) -> Offer:
    """Prepare the Thinker's side of a chosen link; `own_host` is the address that the Performer called."""
    return ShmOffer(shape) if link == "shm" else GlooOffer(shape, own_host)


def join_link(link: str, address: str, shape: LinkShape, peer: Peer, timeout_s: float) -> LinkEnd:
    """Open the Performer's side of a chosen link to the Thinker `peer`, which offered `address`.

    Raises:
        OSError, RuntimeError: the Thinker went, or did not answer in time.
    """
    join = join_shm if link == "shm" else join_gloo
    return join(address, shape, peer, timeout_s)


def _check_both_have(link: str, thinker: Wish, performer: Wish) -> None:
    for wish in (thinker, performer):
        if link not in wish.available:
            has = ", ".join(wish.available) or "none"
            raise LinkUnavailable(f"link {link} is not available to the {wish.process}, which has: {has}")
    if link == "shm" and thinker.host != performer.host:
        raise LinkUnavailable(
            f"link shm needs both processes on one host: the thinker is on {thinker.host}, "
            f"the performer on {performer.host}"
        )


def _build() -> str:
    return f"torch {torch.__version__}"

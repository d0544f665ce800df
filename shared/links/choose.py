"""Which link two processes take, and opening it on both sides. The only module that knows every link."""

import logging
import sys
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from shared.errors import ConfigError, LinkUnavailable
from shared.links.base import LinkEnd, LinkShape
from shared.links.ccl.group import CCL
from shared.links.gloo import GlooOffer, join_gloo
from shared.links.groups import NCCL, XCCL
from shared.links.peer import Peer
from shared.links.ready_to_receive import AnnouncedOffer, join_announced
from shared.links.shm import ShmOffer, join_shm

AUTO = "auto"
LINK_NAMES = (AUTO, "shm", "gloo", "ccl", "xccl", "nccl")

_DEVICE_KINDS = {"xccl": "xpu", "nccl": "cuda"}  # between such devices payloads never visit the host
_ANNOUNCED = {backend.name: backend for backend in (CCL, XCCL, NCCL)}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What one process brings to the choice."""

    process: str
    """"thinker" or "performer", for messages."""
    link: str
    """A name of LINK_NAMES."""
    host: str
    """Identity of the host's shared memory; equal when two processes can share it."""
    device: str = "cpu"
    """Where the process computes: "cpu", "cuda:0", …"""
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


def missing(link: str, device: str = "cpu") -> str | None:
    """What a process on `device` lacks here for `link`, in words; None when it can be had."""
    match link:
        case "shm":
            return None if sys.platform == "linux" else "it needs Linux (memfd and eventfd)"
        case "gloo":
            built = dist.is_available() and dist.is_gloo_available()
            return None if built else f"torch {torch.__version__} was built without gloo"
        case "ccl" | "xccl" | "nccl":
            return _ANNOUNCED[link].lacking(_kind_of(device))
        case _:
            raise ConfigError(f"link: unknown name {link!r}, known are {', '.join(LINK_NAMES)}")


def available_links(device: str = "cpu") -> tuple[str, ...]:
    """Names of the links that a process on `device` can open here."""
    return tuple(name for name in LINK_NAMES if name != AUTO and missing(name, device) is None)


def check_link(link: str, device: str = "cpu") -> None:
    """Refuse a name that is unknown or can't be had here; "auto" passes. Builds what has to be built for it.

    Raises:
        ConfigError: there is no link of that name.
        LinkUnavailable: there is, but not here; the message says what is missing.
    """
    if link != AUTO and (reason := missing(link, device)) is not None:
        raise LinkUnavailable(f"link {link} is not available: {reason}")
    if link in _ANNOUNCED:
        _ANNOUNCED[link].prepare()


def choose_link(thinker: Capabilities, performer: Capabilities) -> str:
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
        chosen, reason = wishes.pop(), "as asked for"
    else:
        chosen, reason = _best(thinker, performer)
    _check_both_have(chosen, thinker, performer)
    _log.info("link %s, %s", chosen, reason)
    return chosen


def offer_link(link: str, shape: LinkShape, *, own_host: str, device: str) -> Offer:
    """Prepare the Thinker's side of a chosen link.

    Args:
        link: What `choose_link` said.
        shape: Sizes of both directions.
        own_host: The address that the Performer called.
        device: Where this process computes.

    Raises:
        LinkUnavailable: something could not be built after all.
    """
    if link in _ANNOUNCED:
        _ANNOUNCED[link].prepare()
        return AnnouncedOffer(_ANNOUNCED[link], shape, own_host, device=_device_of(link, device))
    return ShmOffer(shape) if link == "shm" else GlooOffer(shape, own_host)


def join_link(
    link: str, address: str, shape: LinkShape, peer: Peer, timeout_s: float, *, device: str
) -> LinkEnd:
    """Open the Performer's side of a chosen link to the Thinker `peer`, which offered `address`.

    Raises:
        OSError, RuntimeError: the Thinker went, or did not answer in time.
        LinkUnavailable: something could not be built after all.
    """
    if link in _ANNOUNCED:
        _ANNOUNCED[link].prepare()
        backend, own_device = _ANNOUNCED[link], _device_of(link, device)
        return join_announced(backend, address, shape, peer, timeout_s, device=own_device)
    join = join_shm if link == "shm" else join_gloo
    return join(address, shape, peer, timeout_s)


def _best(thinker: Capabilities, performer: Capabilities) -> tuple[str, str]:
    """The link that two processes without a wish get, and why."""
    wishes = (thinker, performer)
    for link, kind in _DEVICE_KINDS.items():
        if all(_kind_of(wish.device) == kind and link in wish.available for wish in wishes) and not (
            _on_one_device(*wishes)
        ):
            return link, f"chosen because both processes have a device of the kind {kind}"
    if thinker.host != performer.host:
        return "gloo", "chosen because the two processes are on two hosts"
    chosen = "shm" if all("shm" in wish.available for wish in wishes) else "gloo"
    return chosen, "chosen because the two processes are on one host"


def _check_both_have(link: str, thinker: Capabilities, performer: Capabilities) -> None:
    for wish in (thinker, performer):
        if link not in wish.available:
            has = ", ".join(wish.available) or "none"
            raise LinkUnavailable(f"link {link} is not available to the {wish.process}, which has: {has}")
    if link == "shm" and thinker.host != performer.host:
        raise LinkUnavailable(
            f"link shm needs both processes on one host: the thinker is on {thinker.host}, "
            f"the performer on {performer.host}"
        )
    if link in _DEVICE_KINDS and _on_one_device(thinker, performer):
        raise LinkUnavailable(f"link {link} needs two devices: both processes are on {thinker.device}")


def _device_of(link: str, device: str) -> str:
    """Where payloads lie: what is no link between devices goes through host memory."""
    return device if link in _DEVICE_KINDS else "cpu"


def _kind_of(device: str) -> str:
    return device.partition(":")[0]


def _on_one_device(thinker: Capabilities, performer: Capabilities) -> bool:
    one, other = ((wish.host, _kind_of(wish.device), _index_of(wish.device)) for wish in (thinker, performer))
    return one == other


def _index_of(device: str) -> int:
    return int(device.partition(":")[2] or 0)

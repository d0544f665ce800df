"""Which link two processes take, and opening it on both sides. The only module that knows every link."""

import logging
import sys
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
import torch
import torch.distributed as dist

from shared.errors import ConfigError, LinkUnavailable
from shared.links.base import LinkEnd, LinkShape
from shared.links.gloo import GlooOffer, join_gloo
from shared.links.peer import Peer
from shared.links.shm import ShmOffer, join_shm

if TYPE_CHECKING:
    from shared.links.collective.backends import CollectiveBackend

AUTO = "auto"
LINK_NAMES = (AUTO, "shm", "gloo", "ccl", "xccl", "nccl")
ONE_HOST_LINKS = ("shm", "loopback")

_COLLECTIVE = ("ccl", "xccl", "nccl")
_DEVICE_KINDS = {"xccl": "xpu", "nccl": "cuda"}  # between such devices payloads never visit the host

_log = logging.getLogger(__name__)


LogSafe = Annotated[str, msgspec.Meta(max_length=256, pattern=r"\A[!-~]*\Z")]
"""What a process may say of itself: fit for a line of the log."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one process brings to the choice."""

    process: LogSafe
    """Its role, for messages."""
    link: LogSafe
    """A name of LINK_NAMES."""
    host: LogSafe
    """Identity of the host's shared memory; equal when two processes can share it."""
    device: Annotated[str, msgspec.Meta(pattern=r"\A(cpu|cuda|xpu)(:[0-9]{1,3})?\Z")] = "cpu"
    """Where the process computes."""
    available: tuple[LogSafe, ...]
    """Names of links that this process can open."""


class Offer(Protocol):
    """A link that one process has prepared and the other has not yet joined."""

    address: str
    """What the peer needs to join."""

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        """Wait for the peer and return the listening end.

        Raises:
            OSError, RuntimeError: it did not come in time, or went.
            LinkUnavailable: who came in its place may not.
        """

    def close(self) -> None:
        """Drop what only the set-up needed; before or after `open`."""


def missing(link: str, device: str = "cpu") -> str | None:
    """What a process on `device` lacks here for `link`, in words; None when it can be had."""
    match link:
        case "shm":
            return None if sys.platform == "linux" else "it needs Linux (memfd and eventfd)"
        case "gloo":
            built = dist.is_available() and dist.is_gloo_available()
            return None if built else f"torch {torch.__version__} was built without gloo"
        case "ccl" | "xccl" | "nccl":
            return _backend(link).missing(_kind_of(device))
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
    if link in _COLLECTIVE:
        _backend(link).prepare()


def choose_link(one: Capabilities, other: Capabilities) -> str:
    """The link for two processes. One that was asked for is taken or refused, never replaced.

    Raises:
        LinkUnavailable: they were asked for different ones, or it can't be had; says on which side and why.
    """
    asked_for = {side.link for side in (one, other)} - {AUTO}
    if len(asked_for) > 1:
        raise LinkUnavailable(
            f"the {one.process} was started with link {one.link}, the {other.process} with {other.link}"
        )
    if asked_for:
        chosen, reason = asked_for.pop(), "as asked for"
    else:
        chosen, reason = _best(one, other)
    _check_both_have(chosen, one, other)
    _log.info("link %s, %s", chosen, reason)
    return chosen


def offer_link(link: str, shape: LinkShape, *, own_host: str, device: str) -> Offer:
    """Prepare the listening side of a chosen link; the peer called `own_host`, and this side is on `device`.

    Raises:
        LinkUnavailable: something could not be built after all.
    """
    if link in _COLLECTIVE:
        from shared.links.collective.ready_to_receive import CollectiveOffer  # noqa: PLC0415 - imported when used

        backend = _backend(link)
        backend.prepare()
        return CollectiveOffer(backend, shape, own_host, device=_device_of(link, device))
    return ShmOffer(shape) if link == "shm" else GlooOffer(shape, own_host)


def join_link(
    link: str, address: str, shape: LinkShape, peer: Peer, timeout_s: float, *, device: str
) -> LinkEnd:
    """Open the joining side, on `device`, of the link that `peer` chose, with its `address` and `shape`.

    Raises:
        OSError, RuntimeError: the peer went, or did not answer in time.
        LinkUnavailable: something could not be built after all.
    """
    own = shape.reversed
    if link in _COLLECTIVE:
        from shared.links.collective.ready_to_receive import join_collective  # noqa: PLC0415 - imported when used

        backend = _backend(link)
        backend.prepare()
        return join_collective(backend, address, own, peer, timeout_s, device=_device_of(link, device))
    join = join_shm if link == "shm" else join_gloo
    return join(address, own, peer, timeout_s)


def _backend(link: str) -> "CollectiveBackend":
    from shared.links.collective.backends import BACKENDS  # noqa: PLC0415 - imported when used

    return BACKENDS[link]


def _best(one: Capabilities, other: Capabilities) -> tuple[str, str]:
    """The link that two processes get which were asked for none, and why."""
    both = (one, other)
    for link, kind in _DEVICE_KINDS.items():
        if all(_kind_of(side.device) == kind and link in side.available for side in both) and not (
            _on_one_device(one, other)
        ):
            return link, f"chosen because both processes have a device of the kind {kind}"
    if one.host != other.host:
        return "gloo", "chosen because the two processes are on two hosts"
    chosen = "shm" if all("shm" in side.available for side in both) else "gloo"
    return chosen, "chosen because the two processes are on one host"


def _check_both_have(link: str, one: Capabilities, other: Capabilities) -> None:
    for side in (one, other):
        if link not in side.available:
            has = ", ".join(side.available) or "none"
            raise LinkUnavailable(f"link {link} is not available to the {side.process}, which has: {has}")
    if link == "shm" and one.host != other.host:
        raise LinkUnavailable(
            f"link shm needs both processes on one host: the {one.process} is on {one.host}, "
            f"the {other.process} on {other.host}"
        )
    if link in _DEVICE_KINDS and _on_one_device(one, other):
        raise LinkUnavailable(f"link {link} needs two devices: both processes are on {one.device}")


def _device_of(link: str, device: str) -> str:
    """Where payloads lie: what is no link between devices goes through host memory."""
    return device if link in _DEVICE_KINDS else "cpu"


def _kind_of(device: str) -> str:
    return device.partition(":")[0]


def _on_one_device(one: Capabilities, other: Capabilities) -> bool:
    first, second = ((side.host, _kind_of(side.device), _index_of(side.device)) for side in (one, other))
    return first == second


def _index_of(device: str) -> int:
    return int(device.partition(":")[2] or 0)

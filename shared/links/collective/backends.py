"""Libraries that move payloads from device to device: how a process group of two ranks is made with each."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in torch's stubs

from shared.links.collective.ccl import building
from shared.links.process_groups import PointToPointGroup

_NO_LIMIT = timedelta(days=3650)


class AbortableGroup(PointToPointGroup, Protocol):
    """A process group of two ranks that carries one direction of a link."""

    def abort(self) -> None:
        """End the group and whatever waits for it; from any thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOptions:
    """What a group is made with."""

    store: Store
    rank: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveBackend:
    """A library, by the name of its link."""

    name: str
    missing: Callable[[str], str | None]
    """What a process on a device of that kind lacks for it here, in words."""
    make: Callable[[GroupOptions], AbortableGroup]
    """Makes one direction; both call it at about the same time. A RuntimeError when the peer did not come."""
    prepare: Callable[[], object] = lambda: None
    """Builds what has to be built, once; a LinkUnavailable says why it can't be."""
    connected: Callable[[], object] = lambda: None
    """Called once both directions have carried something."""


def _make_nccl(options: GroupOptions) -> AbortableGroup:
    # By default torch ends the process when a transfer fails or seems to hang. Here the link watches the peer
    # and ends the group alone: the Thinker goes on, and another Performer may come.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    return _made(dist.ProcessGroupNCCL, options)


def _made(kind: Any, options: GroupOptions) -> AbortableGroup:
    limits = kind.Options()
    limits._timeout = _NO_LIMIT  # noqa: SLF001 — no other way; the link has time-outs of its own
    group: AbortableGroup = kind(options.store, options.rank, 2, limits)
    return group


def _missing(device: str, kind: str, make: str, built: Callable[[], bool]) -> str | None:
    if device != kind:
        return f"it needs an {make} GPU (--device {kind}:N) on both sides, and this process runs on {device}"
    return None if built() else f"torch {torch.__version__} was built without it"


def _make_ccl(options: GroupOptions) -> AbortableGroup:
    from shared.links.collective.ccl.group import make_group  # noqa: PLC0415 - loads oneCCL

    return make_group(options)


def _prepare_ccl() -> None:
    from shared.links.collective.ccl.group import prepare  # noqa: PLC0415

    prepare()


def _forget_ccl_names() -> None:
    from shared.links.collective.ccl.library import forget_names  # noqa: PLC0415

    forget_names()


BACKENDS = {
    "ccl": CollectiveBackend(
        name="ccl", missing=lambda _device: building.missing(), make=_make_ccl, prepare=_prepare_ccl,
        connected=_forget_ccl_names,
    ),
    "xccl": CollectiveBackend(
        name="xccl", missing=lambda device: _missing(device, "xpu", "Intel", dist.is_xccl_available),
        make=lambda options: _made(dist.ProcessGroupXCCL, options),
    ),
    "nccl": CollectiveBackend(
        name="nccl", missing=lambda device: _missing(device, "cuda", "NVIDIA", dist.is_nccl_available),
        make=_make_nccl,
    ),
}  # fmt: skip

"""Process groups of two ranks, one for each direction of an announced link: how they are made."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in torch's stubs


class Group(Protocol):
    """One direction: the part of a process group that is used here."""

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to send."""

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to receive."""

    def abort(self) -> None:
        """End the group and whatever waits for it; from any thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a group is set up with."""

    store: Store
    rank: int
    timeout_s: float


_FOR_EVER = timedelta(days=3650)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A way to move payloads from device to device."""

    name: str
    lacking: Callable[[str], str | None]
    """What a process on a device of that kind lacks for it here, in words."""
    make: Callable[[Setting], Group]
    """Makes one direction; both processes call it at about the same time.

    Raises:
        RuntimeError: it can't be, or the peer did not come in time.
    """
    prepare: Callable[[], object] = lambda: None
    """Builds what has to be built, once.

    Raises:
        LinkUnavailable: it can't be; says why.
    """
    settle: Callable[[], object] = lambda: None
    """Called once both directions have carried something."""


def _make_nccl(setting: Setting) -> Group:
    # By default torch ends the process when a transfer fails or seems to hang. Here the link watches the peer
    # and ends the group alone: the Thinker goes on, and another Performer may come.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    return _made(dist.ProcessGroupNCCL, setting)


def _make_xccl(setting: Setting) -> Group:
    return _made(dist.ProcessGroupXCCL, setting)


def _made(kind: Any, setting: Setting) -> Group:
    options = kind.Options()
    options._timeout = _FOR_EVER  # noqa: SLF001 — no other way; the link has time-outs of its own
    group: Group = kind(setting.store, setting.rank, 2, options)
    return group


def _lacking_nccl(device: str) -> str | None:
    return _lacking(device, "cuda", "an NVIDIA GPU (--device cuda:N)", built=dist.is_nccl_available())


def _lacking_xccl(device: str) -> str | None:
    return _lacking(device, "xpu", "an Intel GPU (--device xpu:N)", built=dist.is_xccl_available())


def _lacking(device: str, kind: str, gpu: str, *, built: bool) -> str | None:
    if device != kind:
        return f"it needs {gpu} on both sides, and this process runs on {device}"
    return None if built else f"torch {torch.__version__} was built without it"


NCCL = Backend(name="nccl", lacking=_lacking_nccl, make=_make_nccl)
XCCL = Backend(name="xccl", lacking=_lacking_xccl, make=_make_xccl)

"""How processes set up a process group of torch.distributed: a store behind a port of one of them."""

import socket
from datetime import timedelta
from typing import Any, Protocol, TypedDict

import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in torch's stubs

THINKER_RANK, PERFORMER_RANK = 0, 1


def open_door(host: str) -> socket.socket:
    """A port of `host` that only the set-up uses."""
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def own_store(door: socket.socket, timeout_s: float) -> TCPStore:
    """The store, behind `door`, which it takes over.

    Raises:
        RuntimeError: later, when what is asked for is not there within `timeout_s` seconds.
    """
    host, port = door.getsockname()[:2]
    # A store that opens its port itself listens to every interface; this one is given a bound socket.
    return TCPStore(host, port, is_master=True, master_listen_fd=door.detach(), **_options(timeout_s))


def store_at(host: str, port: int, timeout_s: float) -> TCPStore:
    """The same store, from the other side.

    Raises:
        RuntimeError: it is not there within `timeout_s` seconds; and later, as above.
    """
    return TCPStore(host, port, is_master=False, **_options(timeout_s))


class _Options(TypedDict):
    timeout: timedelta
    wait_for_workers: bool


def _options(timeout_s: float) -> _Options:
    return {"timeout": timedelta(seconds=timeout_s), "wait_for_workers": False}


class Exchange(Protocol):
    """The part of ProcessGroupGloo that is used, and that torch's own type stubs leave out."""

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to send."""

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to receive."""


def meet_over_gloo(store: TCPStore, rank: int, ranks: int, host: str, timeout_s: float) -> Exchange:
    """A group bound to the address `host`, and not the process-wide default: one can follow another.

    Raises:
        RuntimeError: not all came in time.
    """
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()  # noqa: SLF001 — the only way to bind a group to an address
    options._devices = [gloo.create_device(hostname=host)]  # noqa: SLF001
    options._timeout = timedelta(seconds=timeout_s)  # noqa: SLF001
    options._threads = 1  # noqa: SLF001
    group: Exchange = gloo(store, rank, ranks, options)
    return group

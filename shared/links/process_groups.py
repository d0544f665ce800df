"""How processes find each other for a process group of torch.distributed: a store that one of them serves."""

import socket
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # public, but not in torch's stubs

LISTENER_RANK, JOINER_RANK = 0, 1
"""The two sides of a link, as ranks of a group."""


def listen_on(host: str) -> socket.socket:
    """A socket that listens on a free port of `host` and nowhere else, for the set-up alone."""
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def host_store(listener: socket.socket, timeout_s: float) -> TCPStore:
    """The store, served on `listener`, which it takes over.

    Raises:
        RuntimeError: later, when what is asked for is not there within `timeout_s` seconds.
    """
    host, port = listener.getsockname()[:2]
    # A store that opens its port itself listens to every interface; this one is given a bound socket.
    return _store(host, port, timeout_s, is_master=True, master_listen_fd=listener.detach())


def join_store(host: str, port: int, timeout_s: float) -> TCPStore:
    """The same store, from another process.

    Raises:
        RuntimeError: it is not there within `timeout_s` seconds; and later, as above.
    """
    return _store(host, port, timeout_s, is_master=False)


def _store(host: str, port: int, timeout_s: float, **options: Any) -> TCPStore:
    return TCPStore(host, port, timeout=timedelta(seconds=timeout_s), wait_for_workers=False, **options)


class PointToPointGroup(Protocol):
    """The part of a process group that is used, and that torch's own type stubs leave out."""

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to send."""

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> dist.Work:
        """Begin to receive."""


def gloo_group(store: Store, rank: int, ranks: int, host: str, timeout_s: float) -> PointToPointGroup:
    """A group bound to the address `host`, and not the process-wide default: one can follow another.

    Raises:
        RuntimeError: not all ranks came in time.
    """
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()  # noqa: SLF001 — the only way to bind a group to an address
    options._devices = [gloo.create_device(hostname=host)]  # noqa: SLF001
    options._timeout = timedelta(seconds=timeout_s)  # noqa: SLF001
    options._threads = 1  # noqa: SLF001
    group: PointToPointGroup = gloo(store, rank, ranks, options)
    return group

"""The link over a process group that moves payloads from device to device: ccl, xccl, nccl.

Such a group has its price, which shapes this file:

- A receive must know its size, and one that is posted ahead holds a core, or a part of the device, until the
  message comes. So each message is announced: the receiver says over a socket that it has room, the header
  comes back, and then the receive is posted. Nobody asks a device what a header says. (A small message counts
  as sent before it is received: without that word of the receiver's, a sender would never be held back.)
- What is under way can only be waited for. So a thread for each direction does that; see `courier.py`.
- One group carries its messages one after the other. So each direction has a group of its own: slices and
  latents never wait for each other.
- A transfer whose other side died may never end. So a third thread watches the peer, and aborts the groups.
"""

import hmac
import secrets
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # public, but not in torch's stubs

from shared.links.base import LinkEnd, LinkShape
from shared.links.device_transport import DeviceTransport, Way, receive_exactly
from shared.links.groups import Backend, Group, Setting
from shared.links.peer import Peer
from shared.links.process_groups import (
    PERFORMER_RANK,
    THINKER_RANK,
    open_door,
    own_store,
    store_at,
)

_DIRECTIONS = ("slices", "latents")


class AnnouncedOffer:
    """The Thinker's side before the Performer has answered."""

    def __init__(self, backend: Backend, shape: LinkShape, own_host: str, *, device: str) -> None:
        self._backend = backend
        self._shape = shape
        self._device = device
        self._password = secrets.token_hex(16).encode()
        self._door = open_door(own_host)
        port = self._door.getsockname()[1]
        self.address = f"{port} {self._password.decode()}"
        """What the Performer needs to find this side: a port at the address that it called, a password."""

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        """Meet the Performer.

        Raises:
            OSError, RuntimeError: it did not come in time, or went.
        """
        with ExitStack() as undo:
            lines = [undo.enter_context(self._accept(timeout_s)) for _ in _DIRECTIONS]
            store = own_store(self._door, timeout_s)
            setting = Setting(store=store, rank=THINKER_RANK, timeout_s=timeout_s)
            end = _open(self._backend, setting, lines, shape=self._shape, device=self._device, peer=peer)
            undo.pop_all()
        return end

    def close(self) -> None:
        """Close the door through which the link is set up."""
        self._door.close()

    def _accept(self, timeout_s: float) -> socket.socket:
        """The Performer's next line; strangers are hung up on."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._door.settimeout(max(1e-3, deadline - time.monotonic()))
            line, _ = self._door.accept()
            line.settimeout(max(1e-3, deadline - time.monotonic()))
            with suppress(OSError):
                if hmac.compare_digest(receive_exactly(line, len(self._password)), self._password):
                    return line
            line.close()


def join_announced(
    backend: Backend, address: str, shape: LinkShape, peer: Peer, timeout_s: float, *, device: str
) -> LinkEnd:
    """The Performer's side: meet the Thinker, which offered `address`.

    Raises:
        OSError, RuntimeError: the Thinker is not there, or did not answer in time.
    """
    _, thinker_host = peer.hosts()
    port, password = address.split()
    with ExitStack() as undo:
        lines = []
        for _ in _DIRECTIONS:  # one after the other: the Thinker takes them in the order of their calls
            lines.append(undo.enter_context(socket.create_connection((thinker_host, int(port)), timeout_s)))
            lines[-1].sendall(password.encode())
        store = store_at(thinker_host, int(port), timeout_s)
        setting = Setting(store=store, rank=PERFORMER_RANK, timeout_s=timeout_s)
        end = _open(backend, setting, lines, shape=shape, device=device, peer=peer)
        undo.pop_all()
    return end


def _open(
    backend: Backend,
    setting: Setting,
    lines: list[socket.socket],
    *,
    shape: LinkShape,
    device: str,
    peer: Peer,
) -> LinkEnd:
    groups = [
        backend.make(replace(setting, store=PrefixStore(direction, setting.store)))
        for direction in _DIRECTIONS
    ]
    for line in lines:
        line.settimeout(None)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ways = [Way(line, group) for line, group in zip(lines, groups, strict=True)]
    if setting.rank == PERFORMER_RANK:
        ways.reverse()
    outgoing, incoming = ways
    _try_out(outgoing.group, incoming.group, setting, device)
    backend.settle()
    exchange = DeviceTransport(outgoing, incoming, rank=setting.rank, shape=shape, device=device, peer=peer)
    resources = ExitStack()
    resources.callback(exchange.close)
    return LinkEnd(
        kind=backend.name, sender=exchange.sender, receiver=exchange.receiver, peer=peer, resources=resources
    )


def _try_out(outgoing: Group, incoming: Group, setting: Setting, device: str) -> None:
    """Carry one byte each way: libraries connect at the first message, which may take long, or fail."""
    limit = timedelta(seconds=setting.timeout_s)
    byte, other = torch.zeros(1, dtype=torch.uint8, device=device), 1 - setting.rank
    if setting.rank == PERFORMER_RANK:
        incoming.recv([byte], other, 0).wait(limit)
    outgoing.send([byte], other, 0).wait(limit)
    if setting.rank == THINKER_RANK:
        incoming.recv([byte], other, 0).wait(limit)

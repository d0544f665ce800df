"""The link over a process group that moves payloads from device to device: how it is set up.

Such a group has its price, which shapes this package:

- A receive must know its size, and one that is posted ahead holds a core, or a part of the device, until the
  message comes. So each message is preceded by a handshake over a socket: the receiver says that it is ready
  for one, the header comes back, and then the receive is posted. No one asks a device what a header says. (A
  small message counts as sent before it is received: without the receiver's word a sender would never be held
  back.)
- What is in flight can only be waited for. So a thread for each direction does that (`transfer_thread.py`).
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
from shared.links.collective.backends import CollectiveBackend, GroupOptions
from shared.links.collective.device_transport import Channel, DeviceTransport
from shared.links.peer import Peer, receive_exactly
from shared.links.process_groups import JOINER_RANK, LISTENER_RANK, host_store, join_store, listen_on

_DIRECTIONS = ("to_joiner", "to_listener")


class CollectiveOffer:
    """The listening side before the other has joined."""

    def __init__(self, backend: CollectiveBackend, shape: LinkShape, own_host: str, *, device: str) -> None:
        self._backend = backend
        self._shape = shape
        self._device = device
        self._token = secrets.token_hex(16)
        self._listener = listen_on(own_host)
        self.address = f"{self._listener.getsockname()[1]} {self._token}"

    def open(self, peer: Peer, timeout_s: float) -> LinkEnd:
        with ExitStack() as undo:
            controls = [undo.enter_context(self._accept(timeout_s)) for _ in _DIRECTIONS]
            store = PrefixStore(self._token, host_store(self._listener, timeout_s))
            options = GroupOptions(store=store, rank=LISTENER_RANK, timeout_s=timeout_s)
            end = _open(self._backend, options, controls, shape=self._shape, device=self._device, peer=peer)
            undo.pop_all()
        return end

    def close(self) -> None:
        self._listener.close()  # unless the store has taken it over

    def _accept(self, timeout_s: float) -> socket.socket:
        """The next connection that begins with the token; others are hung up on."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._listener.settimeout(max(1e-3, deadline - time.monotonic()))
            control, _ = self._listener.accept()
            control.settimeout(max(1e-3, deadline - time.monotonic()))
            with suppress(OSError):
                if hmac.compare_digest(receive_exactly(control, len(self._token)), self._token.encode()):
                    return control
            control.close()


def join_collective(
    backend: CollectiveBackend, address: str, shape: LinkShape, peer: Peer, timeout_s: float, *, device: str
) -> LinkEnd:
    """The joining side: connect to the peer, which offered `address`.

    Raises:
        OSError, RuntimeError: the peer is not there, or did not answer in time.
    """
    _, peer_host = peer.hosts()
    port, token = address.split()
    with ExitStack() as undo:
        controls = []
        for _ in _DIRECTIONS:  # one after the other: the listening side takes them in this order
            controls.append(undo.enter_context(socket.create_connection((peer_host, int(port)), timeout_s)))
            controls[-1].sendall(token.encode())
        store = PrefixStore(token, join_store(peer_host, int(port), timeout_s))
        options = GroupOptions(store=store, rank=JOINER_RANK, timeout_s=timeout_s)
        end = _open(backend, options, controls, shape=shape, device=device, peer=peer)
        undo.pop_all()
    return end


def _open(
    backend: CollectiveBackend,
    options: GroupOptions,
    controls: list[socket.socket],
    *,
    shape: LinkShape,
    device: str,
    peer: Peer,
) -> LinkEnd:
    channels = []
    for direction, control in zip(_DIRECTIONS, controls, strict=True):
        group = backend.make(replace(options, store=PrefixStore(direction, options.store)))
        control.settimeout(None)
        control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channels.append(Channel(control, group))
    if options.rank == JOINER_RANK:
        channels.reverse()
    outgoing, incoming = channels
    _exchange_a_byte(outgoing, incoming, options, device)
    backend.connected()
    transport = DeviceTransport(
        outgoing, incoming, peer_rank=1 - options.rank, shape=shape, device=device, peer=peer
    )
    sender, receiver = transport.sender, transport.receiver
    return LinkEnd(kind=backend.name, sender=sender, receiver=receiver, peer=peer, release=transport.close)


def _exchange_a_byte(outgoing: Channel, incoming: Channel, options: GroupOptions, device: str) -> None:
    """Carry one byte each way: libraries connect at the first message, which may take long, or fail."""
    limit = timedelta(seconds=options.timeout_s)
    byte, other = torch.zeros(1, dtype=torch.uint8, device=device), 1 - options.rank
    if options.rank == JOINER_RANK:
        incoming.group.recv([byte], other, 0).wait(limit)
    outgoing.group.send([byte], other, 0).wait(limit)
    if options.rank == LISTENER_RANK:
        incoming.group.recv([byte], other, 0).wait(limit)

"""Both directions of an announced link, once its groups are there; `announced.py` says why it is built so."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

import torch
import torch.distributed as dist

from shared.devices import Device, Event, open_device
from shared.errors import SliceError
from shared.links.base import LinkShape
from shared.links.groups import Group
from shared.links.peer import Peer
from shared.links.process_groups import PERFORMER_RANK
from shared.links.ring import RingReceiver, RingSender, Slot
from shared.links.transfer_thread import FLUSH_S, TransferThread
from shared.links.waiting import Doorbell, Poller, Semaphore, Tally
from shared.slices import HEADER_BYTES, unpack_header

_ROOM = b"\0"
_ARRIVE_S = 0.1  # when this end is closed, what the peer has begun to send is still taken in
_GRACE_S = 0.5  # what the peer sent before it went may still be on its way through the group
_LOOK_AGAIN_S = (20e-6, 1e-3)  # how soon to ask a device whether it is done: from, up to


class _Outgoing(NamedTuple):
    at: int
    num_bytes: int
    written: Event
    """When the device has written it."""


class _Incoming(NamedTuple):
    at: int
    read: Event
    """When the device has read what was there before."""


class Way(NamedTuple):
    """What one direction goes over."""

    line: socket.socket
    """Headers; and back, a byte each time that the receiver has room for a message."""
    group: Group
    """Payloads."""


class DeviceTransport:
    """One end, with its slots on `device`."""

    def __init__(
        self,
        outgoing: Way,
        incoming: Way,
        *,
        rank: int,
        shape: LinkShape,
        device: str,
        peer: Peer,
    ) -> None:
        self._outgoing, self._incoming, self._peer_rank = outgoing, incoming, 1 - rank
        self._peer = peer
        self._device = open_device(device)
        out_bytes, in_bytes = shape.slice_bytes, shape.latent_bytes
        if rank == PERFORMER_RANK:
            out_bytes, in_bytes = in_bytes, out_bytes
        self._out_slots = [_slot(out_bytes, self._device) for _ in range(shape.depth)]
        self._in_slots = [_slot(in_bytes, self._device) for _ in range(shape.depth)]
        released, ready = Tally.create(), Semaphore.create()
        self._sent = TransferThread[_Outgoing]("link-sent", released, peer, self._carry_out, _aside(device))
        self._received = TransferThread[_Incoming](
            "link-received", ready, peer, self._carry_in, _aside(device)
        )
        self._watch = _Watch(peer, self._abort)
        for index in range(shape.depth):
            self._empty(index)
        self.sender = RingSender(
            max_bytes=out_bytes,
            slots=self._out_slots,
            released=released,
            publish=self._send,
            peer=peer,
        )
        self.receiver = RingReceiver(
            max_bytes=in_bytes, slots=self._in_slots, ready=ready, recycle=self._empty,
            peer=peer, settle=lambda: self._received.join(_GRACE_S + FLUSH_S),
        )  # fmt: skip

    def _send(self, index: int, num_bytes: int) -> None:
        self._sent.give(_Outgoing(index, num_bytes, self._device.event()))

    def _empty(self, index: int) -> None:
        self._received.give(_Incoming(index, self._device.event()))

    def _carry_out(self, message: _Outgoing) -> None:
        slot = self._out_slots[message.at]
        receive_exactly(self._outgoing.line, len(_ROOM))
        if self._peer.gone():
            raise ConnectionError("it left")
        self._outgoing.line.sendall(slot.header)
        if message.num_bytes:
            message.written.gate()
            self._finish(self._outgoing.group.send([slot.payload[: message.num_bytes]], self._peer_rank, 0))

    def _carry_in(self, room: _Incoming) -> None:
        self._incoming.line.sendall(_ROOM)
        header = receive_exactly(self._incoming.line, HEADER_BYTES)
        slot = self._in_slots[room.at]
        if num_bytes := _announced_bytes(header, len(slot.payload)):
            room.read.gate()
            self._finish(self._incoming.group.recv([slot.payload[:num_bytes]], self._peer_rank, 0))
        slot.header[:] = header

    def _finish(self, work: dist.Work) -> None:
        """Wait until `work` is done, on the host and on the device."""
        work.wait()
        done, pause_s = self._device.event(), _LOOK_AGAIN_S[0]
        while not done.done():  # its own wait would hold a core
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LOOK_AGAIN_S[1])

    def _abort(self) -> None:
        for way in (self._outgoing, self._incoming):
            way.group.abort()

    def close(self) -> None:
        """Let what was committed leave, and what comes arrive, within bounds; then end everything."""
        self._sent.finish()
        self._sent.join(FLUSH_S)
        self._watch.close()
        self._received.stop()
        self._received.join(_ARRIVE_S)
        for way in (self._outgoing, self._incoming):
            with suppress(OSError):
                way.line.shutdown(socket.SHUT_RDWR)
        self._abort()
        for courier in (self._sent, self._received):
            courier.close()
        for way in (self._outgoing, self._incoming):
            way.line.close()


class _Watch:
    """A thread that waits for the end of the peer, and a little longer, to call `act`."""

    def __init__(self, peer: Peer, act: Callable[[], None]) -> None:
        self._peer = peer
        self._act = act
        self._over = Doorbell()
        self._thread = threading.Thread(target=self._run, name="link-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._over.ring()
        self._thread.join()
        self._over.close()

    def _run(self) -> None:
        over = Poller(self._over.filenos())
        either = Poller((*self._over.filenos(), self._peer.fileno()))
        while either.wait(None) and not over.wait(0):
            if self._peer.gone():
                if not over.wait(_GRACE_S):
                    self._act()
                return


def _slot(max_bytes: int, device: Device) -> Slot:
    payload = torch.zeros(max_bytes, dtype=torch.uint8, device=device.torch)
    return Slot(header=memoryview(bytearray(HEADER_BYTES)), payload=payload)


def _aside(device: str) -> AbstractContextManager[None]:
    """A stream that waits for nothing but what it is told to."""
    return open_device(device).aside()


def _announced_bytes(header: bytes, max_bytes: int) -> int:
    """Size of the payload that follows; 0 for what is no header, which shows when it is read."""
    try:
        num_bytes = unpack_header(header).payload_bytes
    except SliceError:
        return 0
    return num_bytes if num_bytes <= max_bytes else 0


def receive_exactly(line: socket.socket, num_bytes: int) -> bytes:
    """So many bytes; raises OSError when the other side hangs up, or at the line's time-out."""
    received = bytearray()
    while len(received) < num_bytes:
        part = line.recv(num_bytes - len(received))
        if not part:
            raise ConnectionError("it hung up")
        received += part
    return bytes(received)

"""Both directions of a link over a collective library; `ready_to_receive.py` says why it is built so."""

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
from shared.links.collective.backends import AbortableGroup
from shared.links.peer import Peer, receive_exactly
from shared.links.ring import MessageBuffer, RingReceiver, RingSender
from shared.links.transfer_thread import FLUSH_S, TransferThread
from shared.links.waiting import Poller, WakeEvent, ring_counts
from shared.slices import HEADER_BYTES, unpack_header

_READY = b"\0"
_ARRIVE_S = 0.1  # when this end is closed, what the peer has begun to send is still taken in
_GRACE_S = 0.5  # what the peer sent before it went may still be on its way through the group
_POLL_S = (20e-6, 1e-3)  # how soon to ask a device whether it is done: from, up to


class _Send(NamedTuple):
    buffer: int
    num_bytes: int
    written: Event
    """When the device has written it."""


class _Receive(NamedTuple):
    buffer: int
    read: Event
    """When the device has read what was there before."""


class Channel(NamedTuple):
    """What one direction goes over."""

    control: socket.socket
    """Headers; and back, a byte each time that the receiver is ready for a message."""
    group: AbortableGroup
    """Payloads."""


class DeviceTransport:
    """One end, with its buffers on `device`."""

    def __init__(
        self,
        outgoing: Channel,
        incoming: Channel,
        *,
        peer_rank: int,
        shape: LinkShape,
        device: str,
        peer: Peer,
    ) -> None:
        self._outgoing, self._incoming, self._peer_rank = outgoing, incoming, peer_rank
        self._peer = peer
        self._device = open_device(device)
        self._out_buffers = [_buffer(shape.to_peer, self._device) for _ in range(shape.depth)]
        self._in_buffers = [_buffer(shape.from_peer, self._device) for _ in range(shape.depth)]
        released, ready = ring_counts()
        self._sent = TransferThread[_Send]("link-sent", released, peer, self._transmit, _aside(device))
        self._received = TransferThread[_Receive]("link-received", ready, peer, self._accept, _aside(device))
        self._watch = _Watch(peer, self._abort)
        for buffer in range(shape.depth):
            self._recycle(buffer)
        self.sender = RingSender(
            buffers=self._out_buffers, released=released, publish=self._publish, peer=peer
        )
        self.receiver = RingReceiver(
            buffers=self._in_buffers, ready=ready, recycle=self._recycle, peer=peer, wipes=True,
            drain=lambda: self._received.join(_GRACE_S + FLUSH_S),
        )  # fmt: skip

    def _publish(self, buffer: int, num_bytes: int) -> None:
        self._sent.submit(_Send(buffer, num_bytes, self._device.event()))

    def _recycle(self, buffer: int) -> None:
        self._received.submit(_Receive(buffer, self._device.event()))

    def _transmit(self, message: _Send) -> None:
        buffer = self._out_buffers[message.buffer]
        receive_exactly(self._outgoing.control, len(_READY))
        if self._peer.gone():
            raise ConnectionError("it left")
        self._outgoing.control.sendall(buffer.header)
        if message.num_bytes:
            message.written.gate()
            self._wait(self._outgoing.group.send([buffer.payload[: message.num_bytes]], self._peer_rank, 0))

    def _accept(self, free: _Receive) -> None:
        self._incoming.control.sendall(_READY)
        header = receive_exactly(self._incoming.control, HEADER_BYTES)
        buffer = self._in_buffers[free.buffer]
        if num_bytes := _payload_bytes(header, len(buffer.payload)):
            free.read.gate()
            self._wait(self._incoming.group.recv([buffer.payload[:num_bytes]], self._peer_rank, 0))
        buffer.header[:] = header

    def _wait(self, work: dist.Work) -> None:
        """Wait until `work` is done, on the host and on the device."""
        work.wait()
        done, pause_s = self._device.event(), _POLL_S[0]
        while not done.done():  # its own wait would hold a core
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S[1])

    def _abort(self) -> None:
        for channel in (self._outgoing, self._incoming):
            channel.group.abort()

    def close(self) -> None:
        """Let what was committed leave, and what comes arrive, within bounds; then end everything."""
        self._sent.finish()
        self._sent.join(FLUSH_S)
        self._watch.close()
        self._received.stop()
        self._received.join(_ARRIVE_S)
        for channel in (self._outgoing, self._incoming):
            with suppress(OSError):
                channel.control.shutdown(socket.SHUT_RDWR)
        self._abort()
        for thread in (self._sent, self._received):
            thread.close()
        for channel in (self._outgoing, self._incoming):
            channel.control.close()


class _Watch:
    """A thread that waits for the end of the peer, and a little longer, to call `act`."""

    def __init__(self, peer: Peer, act: Callable[[], None]) -> None:
        self._peer = peer
        self._act = act
        self._closing = WakeEvent()
        self._thread = threading.Thread(target=self._run, name="link-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._closing.close()

    def _run(self) -> None:
        either = Poller((*self._closing.filenos(), self._peer.fileno()))
        while either.wait(None) and not self._closing.wait(0):
            if self._peer.gone():
                if not self._closing.wait(_GRACE_S):
                    self._act()
                return


def _buffer(max_bytes: int, device: Device) -> MessageBuffer:
    payload = torch.zeros(max_bytes, dtype=torch.uint8, device=device.torch)
    return MessageBuffer(header=memoryview(bytearray(HEADER_BYTES)), payload=payload)


def _aside(device: str) -> AbstractContextManager[None]:
    """A stream that waits for nothing but what it is told to."""
    return open_device(device).aside()


def _payload_bytes(header: bytes, max_bytes: int) -> int:
    """Size of the payload that follows; 0 for what is no header, which shows when it is read."""
    try:
        num_bytes = unpack_header(header).payload_bytes
    except SliceError:
        return 0
    return num_bytes if num_bytes <= max_bytes else 0

"""Several Performer ranks that solve one unit together, each with its share of the model.

Rank 0 leads: it alone talks to the Thinker, over the link, as a single Performer does. Every message that
comes goes on to the other ranks, so that all run the same loop over the same messages
(`performer.broadcast`). During a solve they meet in `Group.reduce`, twice a layer (`models.tensor_parallel`).

A follower waits for its leader without limit; all else has a time-out. The leader's is the shorter one,
so that it is the leader that tells what went wrong, and ends with it. Followers end with their leader.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # not in torch's stubs
from torch.distributed import TCPStore as Store  # type: ignore[attr-defined]

from shared.errors import DeviceError, GroupError, LinkClosed
from shared.links.base import Message
from shared.links.process_groups import meet_over_gloo, open_door, own_store, store_at
from shared.models.tensor_parallel import ShardSpec
from shared.slices import HEADER_BYTES, pack_header_into, unpack_header

HOST = "127.0.0.1"
LEADER = 0
ADDERS = {"cuda": "ProcessGroupNCCL", "xpu": "ProcessGroupXCCL"}
MEET_WITHIN_S = 60.0
POLL_S = 0.05
FATE_WITHIN_S = 1.0  # a process that was killed is seen to have ended this soon after its connections broke

_log = logging.getLogger(__name__)

_NO_LIMIT = timedelta(days=3650)
_MESSAGE, _SUM = 1, 2  # tags

_Begun = tuple[int, dist.Work]
"""With which rank, and what."""

Fate = Callable[[], str | None]
"""Tells which other rank has ended, and how; None while all live."""


def open_store() -> Store:
    """The leader's: where the ranks find each other, on a free port (`store.port`) of this host alone."""
    return own_store(open_door(HOST), MEET_WITHIN_S)


def join_store(port: int) -> Store:
    """A follower's way to its leader's store."""
    return store_at(HOST, port, MEET_WITHIN_S)


class Group:
    """One rank's place among all. For one thread.

    Attributes:
        unit: what is being worked on, for messages.
    """

    def __init__(
        self, store: Store, *, rank: int, ranks: int, within_s: float, fate: Fate = lambda: None
    ) -> None:
        """Become known to the others; `meet` then connects.

        Args:
            store: from `open_store` or `join_store`.
            rank: this one; `LEADER` is 0.
            ranks: how many there are.
            within_s: how long the leader waits for another rank; a follower waits twice as long.
            fate: asked when another rank does not answer, and now and then while there is nothing to do.
        """
        self.rank, self.ranks, self.unit = rank, ranks, -1
        self._store = store
        self._within = timedelta(seconds=within_s * (1 if rank == LEADER else 2))
        self._fate = fate
        self._others = [other for other in range(ranks) if other != rank]
        self._told: list[_Begun] = []
        self._header = torch.zeros(HEADER_BYTES, dtype=torch.uint8)
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self.announce("here")

    @property
    def share(self) -> ShardSpec:
        """What this rank computes."""
        return ShardSpec(rank=self.rank, ranks=self.ranks, reduce=self.reduce)

    def announce(self, what: str) -> None:
        """Let `await_all` know that this rank has come so far."""
        self._store.set(f"{what}/{self.rank}", "")

    def await_all(self, what: str, stop: threading.Event) -> bool:
        """Wait until all ranks have announced it; False when told to stop.

        Raises:
            GroupError: a rank has ended before.
        """
        keys = [f"{what}/{rank}" for rank in range(self.ranks)]
        while not self._store.check(keys):
            self.check()
            if stop.wait(POLL_S):
                return False
        return True

    def meet(self, device: str = "cpu") -> None:
        """Connect to all ranks, which compute on devices of this kind: "cpu", "cuda" or "xpu".

        Raises:
            GroupError: one did not come.
            DeviceError: torch has nothing to add up with there.
        """
        if device in ADDERS and not hasattr(dist, ADDERS[device]):
            why = f"ranks need {ADDERS[device]}, and torch {torch.__version__} has none"
            raise DeviceError(f"--device {device}: {why}")
        try:
            self._exchange = meet_over_gloo(self._store, self.rank, self.ranks, HOST, MEET_WITHIN_S)
            self._on_device = self._adder_on(device) if device in ADDERS else None
        except RuntimeError as error:
            _log.debug("group: %s", error)
            raise GroupError(f"{self}: the ranks did not meet within {MEET_WITHIN_S:g} s") from None

    def _adder_on(self, device: str) -> Any:
        """What adds up without a detour by the host; where that hangs, torch's watchdog ends the process."""
        adder = getattr(dist, ADDERS[device])
        options = adder.Options()
        options._timeout = self._within  # noqa: SLF001 — no other way
        return adder(PrefixStore("sums", self._store), self.rank, self.ranks, options)

    def check(self) -> None:
        """Raise a GroupError when another rank has ended."""
        if (fate := self._fate()) is not None:
            raise GroupError(f"{self}: {fate}")

    def reduce(self, x: Tensor) -> Tensor:
        """Replace `x` by the sum of what all ranks brought; call it in all of them.

        On the CPU every rank adds in the order of the ranks, so that all have the same bits. One exchange of
        whole tensors between each two: with few ranks that is faster than gloo's own reduction, which takes
        several rounds, and a time-out says who did not come.

        Raises:
            GroupError: a rank did not answer in time, or has ended.
        """
        if self._on_device is not None:
            self._on_device.allreduce([x]).wait()
            return x
        parts = self._room(self.ranks * x.nbytes).view(x.dtype).view(self.ranks, *x.shape)
        parts[self.rank] = x
        own = parts[self.rank]
        works = [self._recv(parts[other], other, _SUM) for other in self._others]
        works += [self._send(own, other, _SUM) for other in self._others]
        self._finish(works)
        return torch.sum(parts, 0, out=x)

    def tell(self, message: Message) -> None:
        """The leader: begin to send a message to the followers; it must stay until `settle`."""
        header, payload = message
        self.unit = header.unit
        pack_header_into(
            self._header.numpy().data, header, sent_at_ns=header.sent_at_ns, checksum=header.checksum
        )
        payload = payload.cpu()
        for other in self._others:
            self._told.append(self._send(self._header, other, _MESSAGE))
            if payload.numel():
                self._told.append(self._send(payload, other, _MESSAGE))

    def settle(self) -> None:
        """The leader: wait until the message has been taken.

        Raises:
            GroupError: a rank did not take it in time, or has ended.
        """
        told, self._told = self._told, []
        self._finish(told)

    def hear(self) -> Message:
        """A follower: the leader's next message, whenever it comes; its payload is valid until the next.

        Raises:
            LinkClosed: the leader has ended.
        """
        try:
            self._exchange.recv([self._header], LEADER, _MESSAGE).wait(_NO_LIMIT)
        except RuntimeError as error:
            raise LinkClosed(f"{self}: the leader has ended ({error})") from None
        header = unpack_header(self._header.numpy().data)
        self.unit = header.unit
        payload = self._room(header.payload_bytes)
        if header.payload_bytes:
            self._finish([self._recv(payload, LEADER, _MESSAGE)])
        return Message(header, payload)

    def _room(self, num_bytes: int) -> Tensor:
        if self._scratch.numel() < num_bytes:
            self._scratch = torch.empty(num_bytes, dtype=torch.uint8)
        return self._scratch[:num_bytes]

    def _send(self, x: Tensor, other: int, tag: int) -> _Begun:
        with self._broken(other):
            return other, self._exchange.send([x], other, tag)

    def _recv(self, x: Tensor, other: int, tag: int) -> _Begun:
        with self._broken(other):
            return other, self._exchange.recv([x], other, tag)

    def _finish(self, works: Iterable[_Begun]) -> None:
        for other, work in works:
            with self._broken(other):
                work.wait(self._within)

    @contextmanager
    def _broken(self, other: int) -> Iterator[None]:
        """Say what became of a rank with which the exchange breaks, in time or out of it."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            _log.debug("group: rank %d: %s", other, error)
            if time.monotonic() - began >= self._within.total_seconds():
                why = f"rank {other} did not answer within {self._within.total_seconds():g} s"
                raise GroupError(f"{self}: {why}") from None
            deadline = time.monotonic() + FATE_WITHIN_S
            while time.monotonic() < deadline:
                self.check()
                time.sleep(POLL_S)
            raise GroupError(f"{self}: rank {other} has left") from None

    def __str__(self) -> str:
        at = f", unit {self.unit}" if self.unit >= 0 else ""
        return f"rank {self.rank} of {self.ranks}{at}"

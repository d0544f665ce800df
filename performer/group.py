"""Several Performer ranks that solve one unit together, each with its shard of the model.

Rank 0 leads: it alone talks to the Thinker, over the link, as a single Performer does. Every message that
comes is broadcast to the other ranks, so that all run the same loop over the same messages
(`performer.broadcast`). During a solve they add up in `RankGroup.reduce`, twice a layer
(`models.tensor_parallel`).

A follower waits for its leader without limit; all else has a time-out. The leader's is the shorter one,
so that it is the leader that tells what went wrong, and ends with it. Followers end with their leader.
"""

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
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # not in torch's stubs

from shared.errors import DeviceError, GroupError, LinkClosed
from shared.links.base import LinkMessage
from shared.links.process_groups import gloo_group, host_store, join_store, listen_on
from shared.models.tensor_parallel import ShardSpec
from shared.slices import HEADER_BYTES, pack_header_into, unpack_header

HOST = "127.0.0.1"
LEADER = 0
REDUCERS = {"cuda": "ProcessGroupNCCL", "xpu": "ProcessGroupXCCL"}
CONNECT_TIMEOUT_S = 60.0
POLL_S = 0.05
EXIT_S = 1.0  # a process that was killed is seen to have ended this soon after its connections broke

_log = logging.getLogger(__name__)

_NO_LIMIT = timedelta(days=3650)
_BROADCAST, _REDUCE = 1, 2  # tags

_Transfer = tuple[int, dist.Work]
"""With which rank, and what."""

ExitStatus = Callable[[], str | None]
"""Tells which other rank has ended, and how; None while all live."""


def open_leader_store() -> TCPStore:
    """The leader's: where the ranks find each other, on a free port (`store.port`) of this host alone."""
    return host_store(listen_on(HOST), CONNECT_TIMEOUT_S)


def join_leader_store(port: int) -> TCPStore:
    """A follower's connection to its leader's store."""
    return join_store(HOST, port, CONNECT_TIMEOUT_S)


class RankGroup:
    """One rank's place among all. For one thread.

    Attributes:
        unit: what is being worked on, for messages.
    """

    def __init__(
        self,
        store: TCPStore,
        *,
        rank: int,
        ranks: int,
        timeout_s: float,
        exit_status: ExitStatus = lambda: None,
    ) -> None:
        """Become known to the others; `connect` then connects.

        The leader waits `timeout_s` for another rank, a follower twice as long; `exit_status` is asked when
        one does not answer, and now and then in between.
        """
        self.rank, self.ranks, self.unit = rank, ranks, -1
        self._store = store
        self._timeout = timedelta(seconds=timeout_s * (1 if rank == LEADER else 2))
        self._exit_status = exit_status
        self._others = [other for other in range(ranks) if other != rank]
        self._sends: list[_Transfer] = []
        self._header = torch.zeros(HEADER_BYTES, dtype=torch.uint8)
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self.reach("started")

    @property
    def shard(self) -> ShardSpec:
        return ShardSpec(rank=self.rank, ranks=self.ranks, reduce=self.reduce)

    def reach(self, barrier: str) -> None:
        """Tell the other ranks that this one has come so far."""
        self._store.set(f"{barrier}/{self.rank}", "")

    def wait_for_all(self, barrier: str, stop: threading.Event) -> bool:
        """Wait until all ranks have reached it; False when `stop` was set before, GroupError if one ended."""
        keys = [f"{barrier}/{rank}" for rank in range(self.ranks)]
        while not self._store.check(keys):
            self.check()
            if stop.wait(POLL_S):
                return False
        return True

    def connect(self, device: str = "cpu") -> None:
        """Connect to all ranks, which compute on devices of this kind: "cpu", "cuda" or "xpu".

        Raises:
            GroupError: one did not come.
            DeviceError: torch has nothing to add up with there.
        """
        if device in REDUCERS and not hasattr(dist, REDUCERS[device]):
            why = f"ranks need {REDUCERS[device]}, and torch {torch.__version__} has none"
            raise DeviceError(f"--device {device}: {why}")
        try:
            self._group = gloo_group(self._store, self.rank, self.ranks, HOST, CONNECT_TIMEOUT_S)
            self._on_device = self._reducer_on(device) if device in REDUCERS else None
        except RuntimeError as error:
            _log.debug("group: %s", error)
            raise GroupError(f"{self}: the ranks did not connect within {CONNECT_TIMEOUT_S:g} s") from None

    def _reducer_on(self, device: str) -> Any:
        """What adds up without a detour by the host; where that hangs, torch's watchdog ends the process."""
        reducer = getattr(dist, REDUCERS[device])
        options = reducer.Options()
        options._timeout = self._timeout  # noqa: SLF001 — no other way
        return reducer(PrefixStore("reduce", self._store), self.rank, self.ranks, options)

    def check(self) -> None:
        """Raise a GroupError when another rank has ended."""
        if (status := self._exit_status()) is not None:
            raise GroupError(f"{self}: {status}")

    def reduce(self, x: Tensor) -> Tensor:
        """Replace `x` by the sum of what all ranks brought; call it in all of them.

        On the CPU every rank adds in the order of the ranks, so that all have the same bits. One transfer of
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
        transfers = [self._recv(parts[other], other, _REDUCE) for other in self._others]
        transfers += [self._send(own, other, _REDUCE) for other in self._others]
        self._finish(transfers)
        return torch.sum(parts, 0, out=x)

    def begin_broadcast(self, message: LinkMessage) -> None:
        """The leader: begin to send a message to the followers; it must stay until `finish_broadcast`."""
        header, payload = message
        self.unit = header.unit
        pack_header_into(
            self._header.numpy().data, header, sent_at_ns=header.sent_at_ns, checksum=header.checksum
        )
        payload = payload.cpu()
        for other in self._others:
            self._sends.append(self._send(self._header, other, _BROADCAST))
            if payload.numel():
                self._sends.append(self._send(payload, other, _BROADCAST))

    def finish_broadcast(self) -> None:
        """The leader: wait until all have the message; a GroupError if one is too late or has ended."""
        sends, self._sends = self._sends, []
        self._finish(sends)

    def receive_broadcast(self) -> LinkMessage:
        """A follower: the leader's next message, its payload valid until the next; LinkClosed at its end."""
        try:
            self._group.recv([self._header], LEADER, _BROADCAST).wait(_NO_LIMIT)
        except RuntimeError as error:
            raise LinkClosed(f"{self}: the leader has ended ({error})") from None
        header = unpack_header(self._header.numpy().data)
        self.unit = header.unit
        payload = self._room(header.payload_bytes)
        if header.payload_bytes:
            self._finish([self._recv(payload, LEADER, _BROADCAST)])
        return LinkMessage(header, payload)

    def _room(self, num_bytes: int) -> Tensor:
        if self._scratch.numel() < num_bytes:
            self._scratch = torch.empty(num_bytes, dtype=torch.uint8)
        return self._scratch[:num_bytes]

    def _send(self, x: Tensor, other: int, tag: int) -> _Transfer:
        with self._failing_with(other):
            return other, self._group.send([x], other, tag)

    def _recv(self, x: Tensor, other: int, tag: int) -> _Transfer:
        with self._failing_with(other):
            return other, self._group.recv([x], other, tag)

    def _finish(self, transfers: Iterable[_Transfer]) -> None:
        for other, work in transfers:
            with self._failing_with(other):
                work.wait(self._timeout)

    @contextmanager
    def _failing_with(self, other: int) -> Iterator[None]:
        """Say what became of a rank with which a transfer fails, in time or out of it."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            _log.debug("group: rank %d: %s", other, error)
            if time.monotonic() - began >= self._timeout.total_seconds():
                why = f"rank {other} did not answer within {self._timeout.total_seconds():g} s"
                raise GroupError(f"{self}: {why}") from None
            deadline = time.monotonic() + EXIT_S
            while time.monotonic() < deadline:
                self.check()
                time.sleep(POLL_S)
            raise GroupError(f"{self}: rank {other} has left") from None

    def __str__(self) -> str:
        at = f", unit {self.unit}" if self.unit >= 0 else ""
        return f"rank {self.rank} of {self.ranks}{at}"

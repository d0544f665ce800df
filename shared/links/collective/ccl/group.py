"""A process group over oneCCL, and the backend "ccl" of torch.distributed.

Where Intel's own `oneccl_bindings_for_pytorch` is installed and fits the torch beside it, it is the backend.
"""

import importlib
import logging
import time
from contextlib import suppress
from datetime import timedelta
from threading import Lock

import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]  # public, but not in torch's stubs

from shared.errors import LinkUnavailable
from shared.links.collective.backends import AbortableGroup, GroupOptions
from shared.links.collective.ccl import building
from shared.links.collective.ccl.library import Communicator, Request, load
from shared.links.peer import host_identity

_log = logging.getLogger(__name__)

_NAME = "ccl"
_POLL_S = 0.02  # how soon a wait sees that its group was aborted
_STORE_POLL_S = 0.001  # how often the store is asked for what the other side sets

# What was in flight when a peer died, failed or not. oneCCL can't give a message up: it would go on with it
# whenever it is called, in memory that is gone. So memory and communicator stay, and oneCCL is left alone.
_stuck: list[Tensor] = []


class CclWork(dist.Work):
    """A message in flight."""

    def __init__(self, group: "CclGroup", request: Request) -> None:
        super().__init__()
        self._group = group
        self._requests = request
        self._done = False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is done; 0 has no limit.

        Raises:
            RuntimeError: it wasn't in time, or failed, or the group was aborted.
        """
        deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        while not self._done:
            self._done = self._group.finish(self._requests, _POLL_S)
            if not self._done and deadline is not None and time.monotonic() > deadline:
                raise RuntimeError(f"oneCCL: not done within {timeout.total_seconds():g} s")
        return True


class CclGroup(dist.ProcessGroup):
    """Two processes that send each other tensors of host memory. Each direction is one thread's at a time."""

    def __init__(self, store: Store, rank: int, timeout: timedelta) -> None:
        """Connect to the other rank within `timeout`; RuntimeError if it does not come."""
        super().__init__(rank, 2)  # type: ignore[call-arg]  # torch's stubs know one constructor of two
        self._store = store
        self._deadline = time.monotonic() + timeout.total_seconds()
        store.set(f"host{rank}", host_identity())
        other = store.get(f"host{1 - rank}").decode()
        self._library = load(rank, one_host=host_identity() == other)
        self._communicator: Communicator | None = self._library.connect(rank, self._get, self._put)
        self._requests: dict[Request, Tensor] = {}
        self._aborted = False
        self._calls = Lock()  # held by every call: none is inside when the communicator goes

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> dist.Work:  # noqa: ARG002 — in order
        """Begin to send the one tensor; it must stay as it is until the work is done."""
        (tensor,) = tensors
        with self._calls:
            request = self._library.send(self._connected(), tensor.data_ptr(), tensor.nbytes, dst)
            self._requests[request] = tensor
        return CclWork(self, request)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> dist.Work:  # noqa: ARG002
        """Begin to receive into the one tensor, which is as large as what comes."""
        (tensor,) = tensors
        with self._calls:
            request = self._library.receive(self._connected(), tensor.data_ptr(), tensor.nbytes, src)
            self._requests[request] = tensor
        return CclWork(self, request)

    def finish(self, request: Request, seconds: float) -> bool:
        """Whether a work is done within so many seconds; RuntimeError when it failed or was aborted."""
        with self._calls:
            self._connected()
            done = self._library.wait(request, seconds)
            if done:
                del self._requests[request]
            return done

    def abort(self) -> None:
        """End the group, and every wait; from any thread."""
        self._aborted = True  # so that a thread that waits lets go of the lock
        with self._calls:
            _stuck.extend(self._requests.values())
            if self._communicator is not None and not _stuck:
                self._library.disconnect(self._communicator)
            self._communicator = None

    def shutdown(self) -> None:
        """The same: nothing here waits for the other side."""
        self.abort()

    def _connected(self) -> Communicator:
        if self._aborted or self._communicator is None:
            raise RuntimeError("oneCCL: the group was aborted")
        return self._communicator

    def _get(self, key: str) -> bytes | None:
        try:
            if self._store.check([key]):
                return bytes(self._store.get(key))
        except RuntimeError as error:
            _log.debug("ccl: the store is gone: %s", error)
            return None
        time.sleep(_STORE_POLL_S)
        return None if time.monotonic() > self._deadline else b""

    def _put(self, key: str, value: bytes) -> None:
        with suppress(RuntimeError):  # without a store no one reads it
            self._store.set(key, value)  # type: ignore[arg-type]  # bytes go too


def prepare() -> None:
    """Build the shim where it is needed.

    Raises:
        LinkUnavailable: it can't be built, or oneCCL is of no more use to this process.
    """
    if _stuck:
        raise LinkUnavailable(
            "link ccl is not available: oneCCL can't give up a message whose other side died; "
            "start this process once more"
        )
    if not building.bindings_fit():
        building.shim()


def make_group(options: GroupOptions) -> AbortableGroup:
    """A group of the backend "ccl"; raises RuntimeError when the other rank does not come in time."""
    register()
    create = dist.Backend._plugins[_NAME.upper()].creator_fn  # noqa: SLF001 — else it must be the default group
    group: AbortableGroup = create(options.store, options.rank, 2, timedelta(seconds=options.timeout_s))
    return group


def register() -> None:
    """Register the backend "ccl" with torch.distributed."""
    if dist.is_backend_available(_NAME):
        return
    if building.bindings_fit():
        importlib.import_module(building.BINDINGS)
    else:
        dist.Backend.register_backend(_NAME, _create, devices=["cpu"])


def _create(store: Store, rank: int, size: int, timeout: timedelta) -> CclGroup:
    if size != 2:
        raise RuntimeError(f"ccl: this backend is for 2 ranks, not {size}")
    return CclGroup(store, rank, timeout)

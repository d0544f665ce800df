"""A thread that waits for one transfer after the other and counts those that are complete.

For links whose transfers can only be waited for inside a call of their own. The model thread never makes such
a call: it waits for the count, with a time-out, and learns of the link's end from the peer's connection.
"""

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.links.peer import Peer
from shared.links.waiting import EventFd

_log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""How long the end of a link waits for what is still in flight."""

TransferT = TypeVar("TransferT")


@dataclass(eq=False)
class TransferThread(Generic[TransferT]):
    """Completes transfers in the order in which they were submitted; the first that fails ends the link."""

    name: str
    completed: EventFd
    """Counts the transfers that are complete; closed with this."""
    peer: Peer
    """Is hung up on when a transfer fails."""
    complete: Callable[[TransferT], None]
    """Sees a transfer through, however long it takes; raises RuntimeError or OSError."""
    context: AbstractContextManager[None] = field(default_factory=nullcontext)
    """Entered for the thread's whole life."""

    def __post_init__(self) -> None:
        self._stopping = False
        self._queue: queue.SimpleQueue[TransferT | None] = queue.SimpleQueue()
        # A daemon, because a host that vanished from the network never completes what was sent to it.
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, transfer: TransferT) -> None:
        """Complete `transfer` after those before it, then count one."""
        self._queue.put(transfer)

    def finish(self) -> None:
        """End the thread after what was submitted."""
        self._queue.put(None)

    def stop(self) -> None:
        """End the thread after the transfer that it waits for, whatever else was submitted."""
        self._stopping = True
        self.finish()

    @contextmanager
    def ending_on_refusal(self) -> Iterator[None]:
        """Take a group's refusal of a transfer for the end of the link, which the next call on it tells."""
        try:
            yield
        except RuntimeError as error:
            self._end(error)
            self.finish()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def close(self) -> None:
        """Close the count, once the thread can't use it any more."""
        self.join(FLUSH_S)
        if not self._thread.is_alive():
            self.completed.close()

    def _run(self) -> None:
        if sys.platform == "linux":  # its parent may have a core to itself, where this would be in the way
            os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
        with self.context:
            try:
                while (transfer := self._queue.get()) is not None and not self._stopping:
                    self.complete(transfer)
                    self.completed.add()
            except (RuntimeError, OSError) as error:
                self._end(error)

    def _end(self, error: Exception) -> None:
        _log.debug("%s: the link to the %s ended: %s", self._thread.name, self.peer.name, error)
        self.peer.hang_up()

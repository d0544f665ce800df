"""A thread that sees to one job after the other and counts what is done.

For links whose transfers can only be waited for inside a call of their own. The model thread never makes such
a call: it waits for the count, with a time-out, and hears of the end of the exchange from the peer's line.
"""

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, TypeVar

from shared.links.peer import Peer
from shared.links.waiting import Count

_log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""How long the end of a link waits for what is still under way."""

JobT = TypeVar("JobT")


class TransferThread(Generic[JobT]):
    """Does jobs in the order in which they were given, until one of them fails: then the exchange is over."""

    def __init__(
        self,
        name: str,
        done: Count,
        peer: Peer,
        do: Callable[[JobT], None],
        within: AbstractContextManager[None] | None = None,
    ) -> None:
        """Start the thread.

        Args:
            name: Of the thread.
            done: Counts what is done; closed with this.
            peer: Is hung up on when a job fails.
            do: Sees to a job, however long it takes; raises RuntimeError or OSError when it can't any more.
            within: What the thread's whole life happens in.
        """
        self._done = done
        self._peer = peer
        self._do = do
        self._within = within or nullcontext()
        self._stopping = False
        self._jobs: queue.SimpleQueue[JobT | None] = queue.SimpleQueue()
        # A daemon, because a host that vanished from the network never completes what was sent to it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def give(self, job: JobT) -> None:
        """Do `job` after those before it, then count one."""
        self._jobs.put(job)

    def finish(self) -> None:
        """End the thread after what it was given."""
        self._jobs.put(None)

    def stop(self) -> None:
        """End the thread after what it is doing, whatever else it was given."""
        self._stopping = True
        self.finish()

    @contextmanager
    def ending_with_the_exchange(self) -> Iterator[None]:
        """Take a refusal of work for what it is, the end of the peer; the next call tells it."""
        try:
            yield
        except RuntimeError as error:
            self._end(error)
            self.finish()

    def join(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` seconds for the thread's end."""
        self._thread.join(timeout_s)

    def close(self) -> None:
        """Close the count, once the thread can't use it any more."""
        self.join(FLUSH_S)
        if not self._thread.is_alive():
            self._done.close()

    def _run(self) -> None:
        if (
            sys.platform == "linux"
        ):  # whoever started it may have a core to itself, where this would be in the way
            os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
        with self._within:
            try:
                while (job := self._jobs.get()) is not None and not self._stopping:
                    self._do(job)
                    self._done.add()
            except (RuntimeError, OSError) as error:
                self._end(error)

    def _end(self, error: Exception) -> None:
        _log.debug("%s: exchange with the %s ended: %s", self._thread.name, self._peer.name, error)
        self._peer.hang_up()

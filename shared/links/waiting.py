"""Waiting on descriptors to 0.1 ms without using the core.

Python's own poll and epoll round a timeout up to whole milliseconds, and its select refuses descriptors over
1,023, which a server with many clients reaches. So the last two milliseconds of a wait are asked of the C
library's ppoll, which takes nanoseconds; what comes before, of Python's poll, which is 1 µs sooner to answer.
"""

import ctypes
import errno
import functools
import os
import select
import time
from collections.abc import Callable
from typing import Protocol, Self

_FINE_MS = 2
_NEVER_MS = 2**31 - 1


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@functools.cache
def _ppoll() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).ppoll
    function.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


class Poller:
    """Waits until one of a fixed set of descriptors is readable. For one thread at a time."""

    def __init__(self, filenos: tuple[int, ...]) -> None:
        self._fds = (_PollFd * len(filenos))(*(_PollFd(fd, select.POLLIN, 0) for fd in filenos))
        self._poll = select.poll()
        for fd in filenos:
            self._poll.register(fd, select.POLLIN)
        self._timeout = _Timespec()
        self._ppoll = _ppoll()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether a descriptor became readable, or hung up, within `timeout_s` seconds; None: no limit."""
        if timeout_s is None:
            return bool(self._poll.poll())
        deadline = time.monotonic() + timeout_s
        coarse_ms = min(int(timeout_s * 1000) - _FINE_MS, _NEVER_MS)
        if coarse_ms > 0 and self._poll.poll(coarse_ms):
            return True
        while True:
            found = self._ppoll(self._fds, len(self._fds), self._left_until(deadline), None)
            if found >= 0:
                return found > 0
            # A signal ends the call early; Python has run its handler by now, so go on with what is left.
            if (code := ctypes.get_errno()) != errno.EINTR:
                raise OSError(code, os.strerror(code))

    def _left_until(self, deadline: float) -> object:
        left_ns = max(0, int((deadline - time.monotonic()) * 1e9))
        self._timeout.seconds, self._timeout.nanoseconds = divmod(left_ns, 1_000_000_000)
        return ctypes.byref(self._timeout)


class EventFd:
    """A count in the kernel whose descriptor is readable while it is over 0.

    Processes that hold the descriptor share the count. The kernel's lock inside an eventfd orders memory too:
    what one process wrote before `add` is seen by the other after `take`, on every architecture. So a ring of
    shared buffers needs no counters of its own.
    """

    FLAGS = os.EFD_NONBLOCK | os.EFD_CLOEXEC

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def create(cls) -> Self:
        return cls(os.eventfd(0, cls.FLAGS))

    def add(self) -> None:
        """Count one up. From any thread."""
        os.eventfd_write(self._fd, 1)

    def take(self) -> int:
        """What is taken off the count; 0 where it was 0; never blocks."""
        try:
            return os.eventfd_read(self._fd)
        except BlockingIOError:
            return 0

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class EventSemaphore(EventFd):
    """A count from which `take` takes one."""

    FLAGS = EventFd.FLAGS | os.EFD_SEMAPHORE


class EventCounter(EventFd):
    """A count from which `take` takes all."""


def ring_counts() -> tuple[EventCounter, EventSemaphore]:
    """Counts of buffers that were released and of messages that are ready: both, or an OSError."""
    released = EventCounter.create()
    try:
        return released, EventSemaphore.create()
    except OSError:
        released.close()
        raise


class WakeEvent:
    """A `threading.Event` with a descriptor: wakes a thread that waits for other descriptors too."""

    def __init__(self) -> None:
        self._count = EventCounter.create()
        self._poller = Poller(self.filenos())

    def set(self) -> None:
        """Wake the waiting thread, or the next wait. From any thread; several before a `clear` count once."""
        self._count.add()

    def clear(self) -> bool:
        """Reset; whether it was set. Call it before looking at what it was set for."""
        return self._count.take() > 0

    def wait(self, timeout_s: float | None) -> bool:
        return self._poller.wait(timeout_s)

    def filenos(self) -> tuple[int, ...]:
        return (self._count.fileno(),)

    def close(self) -> None:
        self._count.close()


class Pollable(Protocol):
    """A source of something to look at that can be waited for together with others."""

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that are readable while there is something to look at."""


class AnyOf:
    """Waits on several sources at once: a receiver and a `WakeEvent`, say."""

    def __init__(self, *sources: Pollable) -> None:
        self._poller = Poller(tuple(fd for source in sources for fd in source.filenos()))

    def wait(self, timeout_s: float | None) -> bool:
        return self._poller.wait(timeout_s)

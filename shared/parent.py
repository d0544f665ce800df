"""Children that do not outlive their parent, however it ends."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, even by `kill -9`.

    Call it first thing in a child. The kernel watches the parent's *thread* that started this process, so a
    launcher must start its children from a thread that stays (its main thread).

    Args:
        parent_pid: Process id that the parent told: if the parent was gone before this call, the kernel has
            nothing left to report, so the child compares and leaves by itself.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)

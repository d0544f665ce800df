"""How a process of ours begins and ends: logging, signals, and its end with the one that started it."""

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

PARENT_VARIABLE = "THINKER_PERFORMER_PARENT"  # set for children, so that they end with their parent
SWITCH_INTERVAL_S = 0.001  # the event loop gets the interpreter back from the model thread this soon

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, even by `kill -9`.

    Call it first thing in a child. The kernel watches the parent's *thread* that started this process, so a
    launcher must start its children from a thread that stays (its main thread). If the parent was gone before
    this call, the kernel has nothing left to report: so the child compares with the `parent_pid` that it was
    told. Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def begin_process(name: str, *, debug: bool) -> None:
    """Logging to stderr, one line each. Under a launcher: warnings alone, and it ends with the launcher."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    level = logging.DEBUG if debug else logging.INFO if parent is None else logging.WARNING
    logging.basicConfig(level=level, format=f"{name}: %(message)s", stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if parent is not None:
        die_with_parent(int(parent))
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on Ctrl-C, termination and hang-up; a second one ends the process at once."""

    def handle(number: int, _frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        logging.getLogger(__name__).debug("signal %d", number)
        stop()

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, handle)


def stop_event() -> threading.Event:
    """An event that the signals set."""
    event = threading.Event()
    on_signals(event.set)
    return event

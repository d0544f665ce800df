"""Processes that a command starts and that end with it, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.common import PARENT

END_WITHIN_S = 8.0


def start(*command: str) -> subprocess.Popen[bytes]:
    """One of our commands as a child, in a process group of its own: Ctrl-C reaches its parent alone.

    Call it on the main thread: the child ends with the thread that started it (`shared.parent`).
    """
    return subprocess.Popen(
        [sys.executable, "-m", "scripts.main", *command],
        env=os.environ | {PARENT: str(os.getpid())},
        process_group=0,
        stdin=subprocess.DEVNULL,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a child to end, and make it."""
    process.terminate()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(code: int) -> str:
    """A child's exit code in words."""
    return f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"

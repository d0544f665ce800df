"""Processes that a command starts and that end with it, whatever happens."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress

from shared.processes.lifetime import PARENT_VARIABLE

END_WITHIN_S = 8.0


class ChildProcesses(AbstractContextManager["ChildProcesses"]):
    """Commands of ours as children, by name: started, watched and ended together. A context manager.

    They end in the order in which they were started, so start first what takes another's end for a fault.
    """

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a command (as behind `thinker-performer`) in a process group of its own: no Ctrl-C for it.

        Call it on the main thread: the child ends with the thread that started it (`lifetime`). What others
        must not read goes into the `environment`, which is added to the parent's, not on the command line.
        """
        self._processes[name] = subprocess.Popen(  # noqa: S603 - a command of ours
            [sys.executable, "-m", "scripts.main", *command],
            env={**os.environ, **(environment or {}), PARENT_VARIABLE: str(os.getpid())},
            process_group=0,
            stdin=subprocess.DEVNULL,
        )

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def exit_code(self) -> tuple[str, int] | None:
        """Which has ended, and its exit code, negative for a signal. A fault goes before who left for it."""
        ended = [(name, code) for name, each in self._processes.items() if (code := each.poll()) is not None]
        return min(ended, key=lambda each: each[1] == 0, default=None)

    def wait(self, name: str, within_s: float) -> None:
        """Let one end by itself, so long at most."""
        with suppress(subprocess.TimeoutExpired):
            self._processes[name].wait(within_s)

    def exit_status(self) -> str | None:
        """The same in words; None while all live."""
        if (ended := self.exit_code()) is None:
            return None
        name, code = ended
        how = f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"
        return f"{name} {how}"

    def end(self) -> None:
        """End all that still live, one after the other."""
        for process in self._processes.values():
            process.terminate()
            try:
                process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __exit__(self, *_: object) -> None:
        self.end()

"""Real processes, started as a user starts them. They and all that they start carry a mark in their
environment, so that whatever is left of them is found, whoever its parent is by then."""

import contextlib
import fcntl
import os
import pty
import re
import secrets
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from shared.processes.secret import SECRET_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
MARK = "THINKER_PERFORMER_TEST"
SECRET = "of these tests and no one else"  # of all processes that they start
SHARED_MEMORY = Path("/dev/shm")
TIMEOUT_S = 90.0  # much more than anything takes, also on a busy machine


def until(condition: Callable[[], object], what: str, within_s: float = TIMEOUT_S) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.05)


class Command:
    """One command of the project in a process of its own; its output is kept."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
        self._output = folder / f"{arguments[0]}-{secrets.token_hex(4)}.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "scripts.main", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT, env=environment,
            )  # fmt: skip

    @property
    def output(self) -> str:
        """What it has written so far, stdout and stderr."""
        return self._output.read_text(encoding="utf-8")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches, or fail when the process ends without."""

        def ended_or_found() -> bool:
            return self.process.poll() is not None or re.search(pattern, self.output) is not None

        until(ended_or_found, f"{pattern!r} in {self.output!r}")
        found = re.search(pattern, self.output)
        assert found, f"ended without {pattern!r}: {self.output}"
        return found

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(TIMEOUT_S)


def _own_terminal() -> None:
    """Between fork and exec: the terminal is this process's, and Ctrl-C there means what it does to a user.

    Tests that run in the background would hand down that it is ignored.
    """
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class TerminalCommand(Command):
    """A command at a terminal of its own, which can be typed at and closed."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self._terminal, inner = pty.openpty()
        self._seen = b""
        self._closed = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.main", *arguments],
            stdin=inner, stdout=inner, stderr=inner, cwd=ROOT, env=environment, start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - no thread holds a lock here
        )  # fmt: skip
        os.close(inner)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What it has shown so far."""
        if self.process.poll() is not None:
            self._reader.join(1.0)  # the rest
        return self._seen.decode()

    def type(self, keys: bytes) -> None:
        """Press keys, Ctrl-C (b"\\x03") among them."""
        os.write(self._terminal, keys)

    def close_terminal(self) -> None:
        """Close the window: the foreground of the terminal is hung up on."""
        if not self._closed.is_set():
            self._closed.set()
            self._reader.join()  # a terminal that is being read from is not closed
            os.close(self._terminal)

    def _read(self) -> None:
        while not self._closed.is_set():
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    self._seen += os.read(self._terminal, 4096)
                except OSError:  # the last process has closed its side
                    return


class Group:
    """Commands that belong together, and all processes that come of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        name, _, value = self._mark.partition("=")
        self._environment = os.environ | {name: value, "TMPDIR": str(self._temporary), "OMP_NUM_THREADS": "1"}
        self._environment[SECRET_VARIABLE] = SECRET
        self._shared_before = set(SHARED_MEMORY.iterdir())
        self._commands: list[Command] = []

    def start(self, *arguments: str) -> Command:
        """Run a command of the project."""
        command = Command(arguments, self._environment, self.folder)
        self._commands.append(command)
        return command

    def start_at_terminal(self, *arguments: str) -> TerminalCommand:
        """Run a command of the project at a terminal of its own."""
        command = TerminalCommand(arguments, self._environment)
        self._commands.append(command)
        return command

    def pids(self, name: str = "") -> list[int]:
        """Processes of this group that are alive; with a name only those of that command."""
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                if folder.name.isdecimal() and self._mark.encode() in (folder / "environ").read_bytes():
                    words = (folder / "cmdline").read_bytes().decode().split("\0")
                    if not name or words[2:4] == ["scripts.main", name]:
                        found.append(int(folder.name))
        return found

    def open_names(self) -> set[str]:
        """Files that can outlive the group, in /dev/shm or /tmp, and that its processes hold."""
        names: set[str] = set()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
                names |= {words[5] for line in maps if len(words := line.split(maxsplit=5)) > 5}
                names |= {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        lasting = {name for name in names if name.startswith(("/dev/shm/", "/tmp/")) and "(del" not in name}
        # Not meant: recordings and logs of the tests, and the project itself where it lies in /tmp.
        own = (str(self.folder.parent), str(ROOT), sys.prefix)
        return {name for name in lasting if not name.startswith(own)}

    def left_files(self) -> list[Path]:
        """New files in /tmp (a folder of its own for the group) and /dev/shm that no process holds."""
        new = set(SHARED_MEMORY.iterdir()) - self._shared_before
        # JACK's library, which PortAudio asks for sound devices, keeps a data base of its own there.
        new = {path for path in new if not path.name.startswith("jack")}
        return [*self._temporary.iterdir(), *(path for path in new if not _is_held(path))]

    def assert_nothing_left(self, within_s: float = 20.0) -> None:
        """Every process of the group ends, and nothing of it stays."""
        until(lambda: not self.pids(), f"the end of {self.pids()}", within_s)
        assert self.left_files() == []

    def end(self) -> None:
        """Whatever still runs is killed."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for command in self._commands:
            command.process.wait(TIMEOUT_S)
            if isinstance(command, TerminalCommand):
                command.close_terminal()


def _is_held(path: Path) -> bool:
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdecimal() and str(path) in (folder / "maps").read_text(encoding="utf-8"):
                return True
    return False


Groups = Callable[[], AbstractContextManager[Group]]


@pytest.fixture(scope="session")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Groups:
    """`with groups() as group:` for fixtures that live longer than a test."""

    @contextlib.contextmanager
    def begin() -> Iterator[Group]:
        group = Group(tmp_path_factory.mktemp("group"))
        try:
            yield group
        finally:
            group.end()

    return begin


@pytest.fixture
def group(groups: Groups) -> Iterator[Group]:
    """Processes of one test."""
    with groups() as group:
        yield group


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    """`eventually(condition, what)` waits until it holds."""
    return until


@pytest.fixture(scope="session")
def report_of() -> Callable[[str], dict[str, object]]:
    """Reads the report of a running Thinker."""

    def read(url: str) -> dict[str, object]:
        operator = {"authorization": f"Bearer {SECRET}"}
        answer = httpx.get(f"{url}/report", headers=operator, timeout=20, trust_env=False)
        report: dict[str, object] = answer.raise_for_status().json()
        return report

    return read


@pytest.fixture(scope="session")
def secret() -> str:
    """What the processes of a test share."""
    return SECRET


@pytest.fixture(scope="session")
def running_pair(groups: Groups) -> Iterator[str]:
    """Address of `live` with the tiny model, without a user of its own."""
    with groups() as group:
        live = group.start("live", "--config", "tiny", "--port", "0", "--no-browser")
        yield live.wait_for(r"the agent is at (http://\S+)")[1]
        live.process.send_signal(signal.SIGINT)
        assert live.wait() == 0, live.output
        group.assert_nothing_left()

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import sys, time
from shared.processes.lifetime import die_with_parent
die_with_parent(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""

LAUNCHER = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
time.sleep(60)
"""


def test_a_child_ends_with_a_launcher_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        os.kill(launcher.pid, signal.SIGKILL)
        # Launcher and child hold the pipe: it ends when both are gone.
        assert launcher.stdout.read() == ""
    assert launcher.returncode == -signal.SIGKILL


def test_a_child_whose_launcher_was_gone_before_it_asked_ends_at_once() -> None:
    no_parent = os.getppid()  # any process but the one that starts the child
    child = subprocess.run([sys.executable, "-c", CHILD, str(no_parent)], stdout=subprocess.PIPE, check=False)
    assert child.returncode == -signal.SIGKILL
    assert child.stdout == b""

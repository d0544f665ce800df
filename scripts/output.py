"""What the commands write: lines for the terminal, JSON for files."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from shared.errors import ConfigError, RuntimeFault


def check_target(path: Path) -> None:
    """Raise a ConfigError when no file can be made at `path`."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path}: can't be written")


def write_json(path: Path, content: object) -> None:
    """Write a report; raises a RuntimeFault where it can't be."""
    try:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise RuntimeFault(f"{path}: can't be written: {error.strerror}") from None


def say(line: str, *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print, to stderr if nothing else is said. Where the terminal is gone there is nobody left to tell."""
    with suppress(OSError):
        print(line, end=end, file=file or sys.stderr, flush=True)


class Subtitles:
    """What is said in a session, on stdout as it is heard; what the agent understood, in lines between."""

    def __init__(self) -> None:
        self._within_line = False

    def words(self, text: str) -> None:
        """The agent says this."""
        say(text, end="", file=sys.stdout)
        self._within_line = True

    def understood(self, request: str) -> None:
        """The agent took something for this request of the user's."""
        self.end_line()
        say(f"understood: {request.replace('_', ' ')}", file=sys.stdout)

    def end_line(self) -> None:
        """What is said next begins a line of its own."""
        if self._within_line:
            say("", file=sys.stdout)
        self._within_line = False

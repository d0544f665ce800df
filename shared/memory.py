"""How much memory a process holds."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path


def rss_mb(pid: int | None = None) -> float | None:
    """Resident memory in MB of a process (default: this one); None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return round(int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def give_back() -> None:
    """Let the C library return what is free of its heap to the system: after a load, up to 80 MB of a pocket.

    Where the C library is not GNU's, nothing happens.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

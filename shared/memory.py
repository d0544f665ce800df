"""How much memory a process holds."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
MOST_FROM_HEAP = 32 << 20  # what is larger is mapped on its own; glibc takes no more
KEPT_FREE = 1 << 30
GROWTH = 64 << 20  # of the heap, when it is too small


def rss_mb(pid: int | None = None) -> float | None:
    """Resident memory in MB of a process (default: this one); None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return round(int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def trim_heap() -> None:
    """Let the C library return what is free of its heap to the system: after a load, up to 80 MB of a pocket.

    Where the C library is not GNU's, nothing happens.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def retain_heap() -> None:
    """Let the C library keep the memory of large temporaries instead of returning it after every use.

    Pictures between the layers of a decoder are some MB each; to map and clear their pages anew for every
    unit took a quarter of the time of decoding eight sessions. Without GNU's C library nothing happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MOST_FROM_HEAP)
        mallopt(M_TRIM_THRESHOLD, KEPT_FREE)
        mallopt(M_TOP_PAD, GROWTH)

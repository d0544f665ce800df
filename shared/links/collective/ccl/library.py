"""The shim's functions. ctypes lets go of the interpreter's lock while one runs."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NewType

from shared.links.collective.ccl.building import library_path, shim

Request = NewType("Request", int)

_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)
_SET = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_int)


@dataclass(frozen=True, slots=True)
class Communicator:
    """Two ranks that have found each other."""

    pointer: int
    callbacks: tuple[object, ...]
    """Called by it as long as it lives."""


class Library:
    """oneCCL, loaded and set up for two ranks, of which this process is `rank`; on `one_host` or on two."""

    def __init__(self, rank: int, *, one_host: bool) -> None:
        path = shim()
        for name, value in _environment(rank, one_host=one_host).items():
            os.environ.setdefault(name, value)  # read by oneCCL when its first communicator is made
        ctypes.CDLL(str(library_path("/libccl.so.1")), mode=ctypes.RTLD_GLOBAL)
        self._shim = ctypes.CDLL(str(path))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self._shim.tp_fault.restype = ctypes.c_char_p
        for function in (self._shim.tp_connect, self._shim.tp_send, self._shim.tp_receive):
            function.restype = pointer
        self._shim.tp_connect.argtypes = (ctypes.c_int, _GET, _SET)
        for function in (self._shim.tp_send, self._shim.tp_receive):
            function.argtypes = (pointer, pointer, size, ctypes.c_int)
        self._shim.tp_disconnect.argtypes = (pointer,)
        self._shim.tp_wait.argtypes = (pointer, ctypes.c_long)

    def connect(
        self, rank: int, get: Callable[[str], bytes | None], put: Callable[[str, bytes], None]
    ) -> Communicator:
        """A communicator of two that finds the other side through what both `put` into a store.

        `get` returns the value of a key, empty while there is none, None to give up: a RuntimeError then.
        """

        def copy(key: bytes, room: int, size: int) -> int:
            value = get(key.decode())
            if value is None or len(value) > size:
                return -1
            ctypes.memmove(room, value, len(value))
            return len(value)

        callbacks = _GET(copy), _SET(lambda key, value, size: put(key.decode(), value[:size]))
        return Communicator(self._checked(self._shim.tp_connect(rank, *callbacks)), callbacks)

    def disconnect(self, communicator: Communicator) -> None:
        """End it; nothing may be in flight."""
        self._shim.tp_disconnect(communicator.pointer)

    def send(self, communicator: Communicator, address: int, num_bytes: int, rank: int) -> Request:
        """Begin to send; raises RuntimeError when it can't be."""
        return Request(self._checked(self._shim.tp_send(communicator.pointer, address, num_bytes, rank)))

    def receive(self, communicator: Communicator, address: int, num_bytes: int, rank: int) -> Request:
        """Begin to receive; raises RuntimeError when it can't be."""
        return Request(self._checked(self._shim.tp_receive(communicator.pointer, address, num_bytes, rank)))

    def wait(self, request: Request, seconds: float) -> bool:
        """Whether it is done within so many seconds; then it is gone. RuntimeError when it failed."""
        done = int(self._shim.tp_wait(request, int(seconds * 1e6)))
        if done < 0:
            raise RuntimeError(self._fault())
        return done == 1

    def _checked(self, pointer: int | None) -> int:
        if pointer is None:
            raise RuntimeError(self._fault())
        return pointer

    def _fault(self) -> str:
        text: bytes = self._shim.tp_fault()
        return text.decode(errors="replace")


@cache
def load(rank: int, *, one_host: bool) -> Library:
    """The library as the first link of this process set it up: that is done once."""
    return Library(rank, one_host=one_host)


def forget_names() -> None:
    """Take away the names of the memory through which the two processes reach each other, once both have it.

    So nothing is left behind in /dev/shm, however a process ends.
    """
    for name in Path("/dev/shm").glob(f"{os.getpid()}:*"):  # noqa: S108 — libfabric names them so
        name.unlink(missing_ok=True)


def _environment(rank: int, *, one_host: bool) -> dict[str, str]:
    local = {"CCL_ATL_SHM": "1", "CCL_LOCAL_SIZE": "2", "CCL_LOCAL_RANK": str(rank), "FI_TCP_IFACE": "lo"}
    remote = {"CCL_ATL_SHM": "0", "CCL_LOCAL_SIZE": "1", "CCL_LOCAL_RANK": "0"}
    return {
        "CCL_ATL_TRANSPORT": "ofi",
        "CCL_OFI_LIBRARY_PATH": str(library_path("/libfabric.so.1")),
        "CCL_WORKER_OFFLOAD": "0",  # its worker thread never rests
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_LOG_LEVEL": "error",
        "FI_PROVIDER": "tcp",
        **(local if one_host else remote),
    }

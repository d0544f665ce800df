"""The process at the other end, seen through a connection that it holds open as long as it lives."""

import math
import socket
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path


class Peer(AbstractContextManager["Peer"]):
    """A connection to watch: no one writes to it, and its end is the end of the peer, `kill -9` included.

    A host that vanishes from the network is noticed by keep-alive probes in about 4 s.
    """

    def __init__(self, name: str, connection: socket.socket) -> None:
        """Take over a connected socket on which both sides have finished talking; `name` is for messages."""
        self.name = name
        self._connection = connection
        self.known_gone = False
        """Whether `gone` has been true before; costs nothing."""
        connection.setblocking(False)
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)

    def gone(self) -> bool:
        """Whether the peer has closed or died. Never blocks."""
        while not self.known_gone:
            try:
                # Reading takes stray bytes off it, which would keep it readable and every wait short.
                self.known_gone = self._connection.recv(4096) == b""
            except BlockingIOError:
                break
            except OSError:
                self.known_gone = True
        return self.known_gone

    def fileno(self) -> int:
        """A descriptor that becomes readable when the peer closes or dies."""
        return self._connection.fileno()

    def hosts(self) -> tuple[str, str]:
        """Addresses of this side and of the peer's, as the connection has them."""
        return str(self._connection.getsockname()[0]), str(self._connection.getpeername()[0])

    def hang_up(self) -> None:
        """End the connection: from now on both sides see the other as gone. From any thread."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            self.known_gone = True

    def close(self) -> None:
        """Close the connection, which tells the peer. May be called twice."""
        self.known_gone = True
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def receive_exactly(connection: socket.socket, num_bytes: int, deadline: float = math.inf) -> bytes:
    """So many bytes; raises OSError when the other side hangs up, or at the deadline of the monotonic clock.

    Without a deadline the connection's time-out holds.
    """
    received = bytearray()
    while len(received) < num_bytes:
        if deadline < math.inf:
            connection.settimeout(max(1e-3, deadline - time.monotonic()))
        part = connection.recv(num_bytes - len(received))
        if not part:
            raise ConnectionError("it hung up")
        received += part
    return bytes(received)


def host_identity() -> str:
    """Equal for processes that can share memory and abstract sockets: one boot, one network namespace."""
    if sys.platform != "linux":
        return socket.gethostname()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/net').readlink()}"

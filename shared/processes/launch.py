"""Thinker and Performer as children of a launcher: started, waited for, and ended whatever happens."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from shared.errors import AddressError, RuntimeFault
from shared.memory import rss_mb
from shared.processes.children import ChildProcesses
from shared.processes.roles import PERFORMER, ROLES, THINKER
from shared.processes.secret import SECRET_VARIABLE, TOKEN_VARIABLE, check_different, launch_secret

READY_WITHIN_S = 120.0
CLIENTS_TOLD_S = 6.0  # that a Thinker without its Performer has to tell its clients


class ChildEndedError(Exception):
    """A process ended by itself and has said why, unless it was killed, of which `status` tells.

    Its exit code becomes the launcher's.
    """

    def __init__(self, exit_code: int, status: str = "") -> None:
        super().__init__(exit_code)
        self.exit_code, self.status = exit_code, status


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """The running processes, and where the Thinker serves."""

    children: ChildProcesses
    url: str
    secret: str

    def wait_ready(self, stop: threading.Event) -> None:
        """Wait until a session can begin.

        A ChildEndedError when one of them ended or `stop` was set, a RuntimeFault if it takes too long.
        """
        deadline = time.monotonic() + READY_WITHIN_S
        while not stop.wait(0.05):
            self.check()
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2, trust_env=False).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeFault(f"the pair was not ready within {READY_WITHIN_S:.0f} s")
        raise ChildEndedError(130)

    def check(self) -> None:
        """Raise ChildEndedError when one of them has ended."""
        if (ended := self.children.exit_code()) is not None:
            name, code = ended
            killed = f"the {self.children.exit_status()}" if code < 0 else ""
            if name != THINKER.name:
                self.children.wait(THINKER.name, CLIENTS_TOLD_S)
            raise ChildEndedError(code if code > 0 else 1, killed)

    def report(self) -> dict[str, object]:
        """What the Thinker measured, with the memory of all; a RuntimeFault when it does not answer."""
        operator = {"authorization": f"Bearer {self.secret}"}
        try:
            answer = httpx.get(f"{self.url}/report", headers=operator, timeout=10, trust_env=False)
            report: dict[str, object] = answer.raise_for_status().json()
        except httpx.HTTPError as error:
            raise RuntimeFault(f"no report: the thinker does not answer ({type(error).__name__})") from None
        report["rss_mb"] = {name: rss_mb(self.children.pid(name)) for name in ROLES}
        return report


@contextmanager
def launched(
    *, thinker: Sequence[str], performer: Sequence[str], url: str, token: str | None
) -> Iterator[Deployment]:
    """Both processes with these options, and a secret that they share; ended when left."""
    secret = launch_secret()
    check_different(secret, token)
    rendezvous = "--rendezvous", f"127.0.0.1:{free_port('127.0.0.1')}"
    environment = {SECRET_VARIABLE: secret}
    tokens = {} if token is None else {TOKEN_VARIABLE: token}
    with ChildProcesses() as children:
        # The Thinker first: it takes a Performer that ends before it for a fault.
        children.start(THINKER.name, THINKER.name, *rendezvous, *thinker, environment=environment | tokens)
        children.start(PERFORMER.name, PERFORMER.name, *rendezvous, *performer, environment=environment)
        yield Deployment(children=children, url=url, secret=secret)


def reachable(host: str) -> str:
    """An address to call a server at that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"[{host}]" if ":" in host else host


def check_port(host: str, port: int) -> int:
    """The port to serve on: `port` if it is free, for 0 one that is.

    Raises:
        AddressError: it can't be had.
    """
    try:
        with _listener(host, port) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise AddressError(f"can't listen on {host}:{port}: {why}; see --host and --port") from None


def free_port(host: str) -> int:
    """A port of `host` that nobody listens on at this moment."""
    return check_port(host, 0)


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)

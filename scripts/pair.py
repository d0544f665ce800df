"""Thinker and Performer as children of a launcher: started, waited for, and ended whatever happens."""

from __future__ import annotations

import argparse
import dataclasses
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from scripts.children import end, start
from scripts.output import say
from shared.errors import AddressError, RuntimeFault
from shared.memory import rss_mb

READY_WITHIN_S = 120.0


class ChildEndedError(Exception):
    """Thinker or Performer ended by itself and has said why; its exit code becomes the launcher's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The two processes, and where the Thinker serves."""

    thinker: subprocess.Popen[bytes]
    performer: subprocess.Popen[bytes]
    url: str
    token: str | None

    def wait_ready(self, stop: threading.Event) -> None:
        """Wait until a session can begin.

        Raises:
            ChildEndedError: one of the two ended, or `stop` was set.
            RuntimeFault: it takes too long.
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
        """Raise ChildEndedError when one of the two has ended."""
        for name, process in (("thinker", self.thinker), ("performer", self.performer)):
            code = process.poll()
            if code is not None:
                if code < 0:
                    say(f"live: the {name} was ended by signal {-code}")
                raise ChildEndedError(code if code > 0 else 1)

    def report(self) -> dict[str, object]:
        """What the Thinker measured, with the memory of both processes.

        Raises:
            RuntimeFault: the Thinker does not answer.
        """
        query = {"token": self.token} if self.token else {}
        try:
            answer = httpx.get(f"{self.url}/report", params=query, timeout=10, trust_env=False)
            report: dict[str, object] = answer.raise_for_status().json()
        except httpx.HTTPError as error:
            raise RuntimeFault(f"no report: the thinker does not answer ({type(error).__name__})") from None
        report["rss_mb"] = {"thinker": rss_mb(self.thinker.pid), "performer": rss_mb(self.performer.pid)}
        return report


@contextmanager
def running_pair(args: argparse.Namespace) -> Iterator[Pair]:
    """Both processes, in groups of their own so that Ctrl-C reaches the launcher alone; ended when left."""
    rendezvous = f"127.0.0.1:{free_port('127.0.0.1')}"
    common = [*_options(args, "config", "link"), "--rendezvous", rendezvous]
    served = _options(args, "host", "port", "pacing", "seed", "token", "device", "allow_origin")
    thinker = start("thinker", *common, *served)
    ranks = "--ranks", str(args.performer_ranks), "--device", args.performer_device or args.device
    performer = start("performer", *common, *ranks)
    try:
        url = f"http://{reachable(args.host)}:{args.port}"
        yield Pair(thinker=thinker, performer=performer, url=url, token=args.token)
    finally:
        end(thinker)  # first: it takes a Performer that ends before it for a fault
        end(performer)


def _options(args: argparse.Namespace, *names: str) -> list[str]:
    """The given options as a command line has them; what was not given is left out."""
    line = []
    for name in names:
        value = getattr(args, name)
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                line += [f"--{name.replace('_', '-')}", str(each)]
    return line


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

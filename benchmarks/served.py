"""Sessions as users have them: both commands, a server between, and clients on WebSockets in one process."""

import asyncio
import itertools
import logging
import multiprocessing
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np
import simplejpeg

from benchmarks.harness import SENTENCE, spawned
from client.errors import ClientError
from client.options import ClientOptions, ClientSummary
from client.run import run_client
from shared.config import RuntimeConfig
from shared.errors import RuntimeFault
from shared.processes.launch import Deployment, free_port, launched
from shared.processes.roles import ROLES

ARRIVE_WITHIN_S = 2.0  # random to the server: clients take their time to connect
ANSWER_WITHIN_S = 30.0
PICTURE = (240, 320)

Row = dict[str, str | float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What the server and its clients tell after a while."""

    clients: int
    running: int
    report: dict[str, Any]
    thinker_cpu: float
    performer_cpu: float
    clients_cpu: float
    underruns: int
    gaps: int

    @property
    def late(self) -> float:
        """Share of all units: late or given up."""
        units = self.report["units"]
        return float((units["late"] + units["dropped"]) / max(1, units["emitted"] + units["dropped"]))

    def row(self) -> Row:
        """For a table."""
        model_side = self.report["model_side_ms"]
        return {
            "by the server": f"{self.running} of {self.clients} clients",
            "late %": 100 * self.late,
            "model-side p50": model_side["p50"],
            "p99": model_side["p99"],
            "loop p99": self.report["loop_ms"]["p99"],
            "event loop p99": self.report["event_loop_lag_ms"]["p99"],
            "thinker cpu %": 100 * self.thinker_cpu,
            "performer cpu %": 100 * self.performer_cpu,
            "clients cpu %": 100 * self.clients_cpu,
            "underruns": self.underruns,
            "units lost": self.gaps,
        }


def serve_clients(config: RuntimeConfig, *, clients: int, seconds: float) -> Served:
    """Let so many clients come, and see how many of them are let in and how these fare.

    Raises:
        RuntimeFault: the pair or the clients failed.
    """
    with tempfile.TemporaryDirectory() as folder, _pair(config, Path(folder)) as pair:
        picture = Path(folder) / "user.jpg"
        picture.write_bytes(_picture())
        ours, theirs = multiprocessing.Pipe()
        process = spawned(_hold_clients, theirs, pair.url, picture, clients)
        theirs.close()
        try:
            _receive(ours, ANSWER_WITHIN_S)
            pids = [pair.children.pid(name) for name in ROLES]
            began, before = time.monotonic(), [cpu_s(pid) for pid in pids]
            time.sleep(seconds)
            report, lasted = cast("dict[str, Any]", pair.report()), time.monotonic() - began
            used = [(cpu_s(pid) - at_first) / lasted for pid, at_first in zip(pids, before, strict=True)]
            ours.send("enough")
            summaries, client_cpu = _receive(ours, ANSWER_WITHIN_S)
        finally:
            process.kill()
            process.join()
    return Served(
        clients=clients,
        running=report["sessions"]["running"],
        report=report,
        thinker_cpu=used[0],
        performer_cpu=used[1],
        clients_cpu=client_cpu,
        underruns=sum(each.underruns for each in summaries),
        gaps=sum(each.gaps for each in summaries),
    )


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used, in all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _pair(config: RuntimeConfig, folder: Path) -> Iterator[Deployment]:
    file, port = str(_config_file(config, folder)), str(free_port("127.0.0.1"))
    options = "--config", file
    with launched(
        thinker=(*options, "--port", port), performer=options, url=f"http://127.0.0.1:{port}", token=None
    ) as pair:
        pair.wait_ready(threading.Event())
        yield pair


def _config_file(config: RuntimeConfig, folder: Path) -> Path:
    """The config as it is, but for its numbers of sessions and phases."""
    path = Path(config.name)
    shipped = resources.files("configs").joinpath(f"{config.name}.toml")
    text = (shipped if not path.is_file() else path).read_text(encoding="utf-8")
    text = re.sub(r"^(sessions|phases)\s*=.*$", "", text, flags=re.MULTILINE)
    file = folder / f"{path.stem}.toml"
    file.write_text(f"sessions = {config.sessions}\nphases = {config.phases}\n{text}", encoding="utf-8")
    return file


def _picture() -> bytes:
    """A user of sorts."""
    height, width = PICTURE
    ramps = np.meshgrid(np.linspace(0, 255, height), np.linspace(0, 255, width), indexing="ij")
    pixels = np.stack([*ramps, np.full(PICTURE, 128.0)], axis=-1).astype(np.uint8)
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels)))


def _receive(connection: Connection, within_s: float) -> Any:
    try:
        if connection.poll(within_s):
            return connection.recv()
    except EOFError:
        raise RuntimeFault("bench sessions: the clients have ended") from None
    raise RuntimeFault(f"bench sessions: the clients did not answer within {within_s:.0f} s")


def _hold_clients(connection: Connection, url: str, picture: Path, clients: int) -> None:
    """In a process of its own: connect them all and hold them until told that it is enough."""
    logging.disable(logging.WARNING)
    options = ClientOptions(url=url, input=picture, texts=(SENTENCE,))
    summaries, lasted = asyncio.run(_all(connection, options, clients))
    connection.send((summaries, cpu_s(os.getpid()) / lasted))


async def _all(
    connection: Connection, options: ClientOptions, clients: int
) -> tuple[list[ClientSummary], float]:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    began = loop.time()
    tasks = []
    for _ in itertools.repeat(None, clients):
        tasks.append(asyncio.ensure_future(run_client(options, stop=stop)))
        await asyncio.sleep(ARRIVE_WITHIN_S / clients)
    connection.send("all came")
    await loop.run_in_executor(None, connection.recv)
    stop.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ClientError):
            raise result
    return [result for result in results if isinstance(result, ClientSummary)], loop.time() - began

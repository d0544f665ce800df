"""Several clients on one pair: all are served, others wait their turn, and none disturbs another.

When units came is looked at only where the machine has nothing else to do.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import pytest

from client.options import ClientOptions, ClientSummary
from client.run import run_client
from client.session import ClientSession, open_session, session_url
from protocol import messages as m
from protocol.media import MediaUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SLOTS = 4
UNIT_S = 0.16
LINES = ("good day", "hello", "how are you", "nice weather")
MEDIA: list[dict[str, Any]] = [
    {"name": "one.mp4", "rate": 48_000},
    {"name": "two.mkv", "rate": 44_100, "size": (177, 99)},
    {"name": "three.wav", "rate": 8_000, "layout": "mono", "size": None},
    {"name": "four.mp4", "rate": None},
]
MakeMedia = Callable[..., Path]
ReportOf = Callable[[str], dict[str, Any]]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def url(
    groups: Callable[[], AbstractContextManager[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A running pair with room for four, as a user starts it."""
    config = tmp_path_factory.mktemp("config") / "four.toml"
    tiny = (Path(__file__).parents[2] / "configs" / "tiny.toml").read_text(encoding="utf-8")
    config.write_text(f"sessions = {SLOTS}\nphases = 2\n{tiny}", encoding="utf-8")
    with groups() as group:
        live = group.start("live", "--config", str(config), "--port", "0", "--no-browser")
        yield live.wait_for(r"the agent is at (http://\S+)")[1]
        live.process.send_signal(signal.SIGINT)
        assert live.wait() == 0, live.output
        assert "Traceback" not in live.output
        group.assert_nothing_left()


class Watcher:
    """A client that is there, sends silence and notes when units come; may stop reading, or vanish."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.arrived: list[tuple[int, float]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def there(cls, url: str) -> AsyncIterator[Self]:
        async with open_session(session_url(url), m.Hello()) as session:
            async with asyncio.timeout(PATIENCE_S):
                await session.wait_ready(lambda _: None)
            watcher = cls(session)
            tasks = [asyncio.create_task(watcher._send()), asyncio.create_task(watcher._read())]
            try:
                yield watcher
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        began, silence = loop.time(), np.zeros(2560, "<i2").tobytes()
        for unit in itertools.count(1):
            await self.session.send_unit(silence, ())
            await asyncio.sleep(began + unit * UNIT_S - loop.time())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        async for message in self.session.incoming():
            if isinstance(message, MediaUnit):
                self.arrived.append((message.unit, loop.time()))
                await self.session.send(m.Ack(unit=message.unit))
            await self.reads.wait()

    async def until(self, units: int) -> None:
        """Wait until so many more have come."""
        wanted = len(self.arrived) + units
        async with asyncio.timeout(PATIENCE_S):
            while len(self.arrived) < wanted:  # noqa: ASYNC110 - nothing rings when a unit comes
                await asyncio.sleep(0.01)

    def assert_undisturbed(self) -> None:
        """Units came in order; where the machine was free all of them, and none late."""
        units = [unit for unit, _ in self.arrived]
        assert units == sorted(set(units))
        if is_quiet():
            assert units == list(range(len(units)))
            gaps = [b - a for (_, a), (_, b) in itertools.pairwise(self.arrived)]
            assert max(gaps) < 2 * UNIT_S


def is_quiet() -> bool:
    """Whether what runs has the processors for itself; else nothing can be said about when things happen."""
    return os.getloadavg()[0] < len(os.sched_getaffinity(0))


async def hold(url: str, file: Path, line: str) -> ClientSummary:
    return await run_client(ClientOptions(url=url, input=file, texts=(line,), seconds=4.0))


async def test_four_clients_with_media_of_all_kinds(
    url: str, make_media: MakeMedia, report_of: ReportOf
) -> None:
    files = [make_media(**form, seconds=5.0) for form in MEDIA]
    before = report_of(url)["units"]
    talks = [asyncio.create_task(hold(url, file, line)) for file, line in zip(files, LINES, strict=True)]
    summaries = await asyncio.gather(*talks)
    units = report_of(url)["units"]
    for summary, line in zip(summaries, LINES, strict=True):
        assert (summary.ended, summary.units_sent) == ("done", 25)
        assert summary.said.strip() == line, "each its own answer"
    assert units["emitted"] - before["emitted"] >= SLOTS * 20
    if is_quiet():
        assert units["late"] - before["late"] <= 0.01 * (units["emitted"] - before["emitted"])
        assert units["dropped"] == before["dropped"]
        assert all(summary.units == 25 for summary in summaries)


async def test_a_fifth_waits_knows_how_long_and_gets_in(url: str, make_media: MakeMedia, group: Any) -> None:
    file = make_media("me.wav", size=None, seconds=1.0)
    async with Watcher.there(url) as watcher:  # so that it is known how long a session lasts
        await watcher.until(4)
    async with contextlib.AsyncExitStack() as house:
        watchers = [await house.enter_async_context(Watcher.there(url)) for _ in range(SLOTS - 1)]
        async with Watcher.there(url) as leaves:
            fifth = group.start("client", "--url", url, "--input", str(file), "--no-window")
            place = r"waiting for a place: next, (about \d+ s|any moment now)\n"
            await asyncio.to_thread(fifth.wait_for, place)
            await leaves.until(4)
            assert " with four\n" not in fifth.output
        assert await asyncio.to_thread(fifth.wait) == 0, fifth.output
        assert " with four\n" in fifth.output
        for watcher in watchers:
            await watcher.until(4)
            watcher.assert_undisturbed()


async def test_a_client_that_is_killed_disturbs_nobody(url: str, make_media: MakeMedia, groups: Any) -> None:
    file = make_media("me.mp4", seconds=60.0)
    async with Watcher.there(url) as first, Watcher.there(url) as second:
        with groups() as group:
            killed = group.start("client", "--url", url, "--input", str(file), "--no-window")
            await until_running(url, 3)
            await first.until(6)
            killed.process.kill()
            await until_running(url, 2)
        for watcher in (first, second):
            await watcher.until(6)
            watcher.assert_undisturbed()


async def test_a_client_that_reads_nothing_disturbs_nobody(url: str) -> None:
    async with Watcher.there(url) as first, Watcher.there(url) as second:
        async with Watcher.there(url) as deaf:
            await deaf.until(3)
            deaf.reads.clear()
            await until_running(url, 2)
            deaf.reads.set()
        for watcher in (first, second):
            await watcher.until(6)
            watcher.assert_undisturbed()


async def test_sessions_that_come_and_go_stall_nobody(url: str) -> None:
    async with Watcher.there(url) as stays:
        for _ in range(4):
            async with Watcher.there(url) as one, Watcher.there(url) as other:
                await one.until(3)
                await other.until(3)
        stays.assert_undisturbed()
        assert len(stays.arrived) > 12


async def until_running(url: str, sessions: int) -> None:
    """Wait until so many hold a slot."""
    # One connection, asked rarely: a new one each time takes more of this process than all the clients.
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http, asyncio.timeout(PATIENCE_S):
        while (await http.get("/report")).json()["sessions"]["running"] != sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.2)

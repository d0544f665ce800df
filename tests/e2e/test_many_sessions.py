"""Several clients on one pair: all are served, others wait their turn, and none disturbs another.

Each scenario runs once. When its units came is a test of its own, which is skipped where something else kept
the machine busy.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a scenario: of each client that watched the units and when they came."""

    watched: list[list[tuple[int, float]]]
    complete: bool = True
    """Beside them: no unit was dropped or missing, and hardly one late."""
    load: float
    """Of the machine, at the end."""


def outcome_of(*watchers: Watcher, complete: bool = True) -> Outcome:
    watched = [list(watcher.arrived) for watcher in watchers]
    return Outcome(watched=watched, complete=complete, load=os.getloadavg()[0])


async def hold(url: str, file: Path, line: str) -> ClientSummary:
    return await run_client(ClientOptions(url=url, input=file, texts=(line,), seconds=4.0))


async def four_clients_with_media_of_all_kinds(
    url: str, make_media: MakeMedia, group: Any, report_of: ReportOf
) -> Outcome:
    files = [make_media(**form, seconds=5.0) for form in MEDIA]
    before = report_of(url)["units"]
    talks = [asyncio.create_task(hold(url, file, line)) for file, line in zip(files, LINES, strict=True)]
    summaries = await asyncio.gather(*talks)
    units = {name: count - before[name] for name, count in report_of(url)["units"].items()}
    for summary, line in zip(summaries, LINES, strict=True):
        assert (summary.ended, summary.units_sent) == ("done", 25)
        assert summary.said.strip() == line, "each its own answer"
    assert units["emitted"] >= SLOTS * 20
    on_time = units["late"] <= 0.01 * units["emitted"] and not units["dropped"]
    return outcome_of(complete=on_time and all(summary.units == 25 for summary in summaries))


async def a_fifth_waits_knows_how_long_and_gets_in(
    url: str, make_media: MakeMedia, group: Any, report_of: ReportOf
) -> Outcome:
    file = make_media("me.wav", size=None, seconds=1.0)
    async with Watcher.there(url) as watcher:  # so that it is known how long a session lasts
        await watcher.until(4)
    async with contextlib.AsyncExitStack() as clients:
        watchers = [await clients.enter_async_context(Watcher.there(url)) for _ in range(SLOTS - 1)]
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
        return outcome_of(*watchers)


async def a_client_is_killed(url: str, make_media: MakeMedia, group: Any, report_of: ReportOf) -> Outcome:
    file = make_media("me.mp4", seconds=60.0)
    async with Watcher.there(url) as first, Watcher.there(url) as second:
        killed = group.start("client", "--url", url, "--input", str(file), "--no-window")
        await until_running(url, 3, report_of)
        await first.until(6)
        killed.process.kill()
        await until_running(url, 2, report_of)
        for watcher in (first, second):
            await watcher.until(6)
        return outcome_of(first, second)


async def a_client_reads_nothing(url: str, make_media: MakeMedia, group: Any, report_of: ReportOf) -> Outcome:
    async with Watcher.there(url) as first, Watcher.there(url) as second:
        async with Watcher.there(url) as deaf:
            await deaf.until(3)
            deaf.reads.clear()
            await until_running(url, 2, report_of)
            deaf.reads.set()
        for watcher in (first, second):
            await watcher.until(6)
        return outcome_of(first, second)


async def sessions_come_and_go(url: str, make_media: MakeMedia, group: Any, report_of: ReportOf) -> Outcome:
    async with Watcher.there(url) as stays:
        for _ in range(4):
            async with Watcher.there(url) as one, Watcher.there(url) as other:
                await one.until(3)
                await other.until(3)
        assert len(stays.arrived) > 12
        return outcome_of(stays)


SCENARIOS = (
    four_clients_with_media_of_all_kinds,
    a_fifth_waits_knows_how_long_and_gets_in,
    a_client_is_killed,
    a_client_reads_nothing,
    sessions_come_and_go,
)


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda scenario: scenario.__name__)
def outcome(
    request: pytest.FixtureRequest,
    url: str,
    make_media: MakeMedia,
    groups: Callable[[], AbstractContextManager[Any]],
    report_of: ReportOf,
) -> Outcome:
    """Of a scenario, whose own assertions hold."""
    with groups() as group:
        done: Outcome = asyncio.run(request.param(url, make_media, group, report_of))
    return done


def test_units_come_in_order(outcome: Outcome) -> None:
    for arrived in outcome.watched:
        units = [unit for unit, _ in arrived]
        assert units == sorted(set(units))


def test_no_unit_is_missing_or_late(outcome: Outcome) -> None:
    cores = len(os.sched_getaffinity(0))
    if outcome.load >= cores:
        pytest.skip(
            f"a load of {outcome.load:.1f} on {cores} cores: nothing can be said about when units come"
        )
    assert outcome.complete
    for arrived in outcome.watched:
        assert [unit for unit, _ in arrived] == list(range(len(arrived)))
        assert max(later - earlier for (_, earlier), (_, later) in itertools.pairwise(arrived)) < 2 * UNIT_S


async def until_running(url: str, sessions: int, report_of: ReportOf) -> None:
    """Wait until so many hold a slot; asked rarely, since each time takes more than all the clients."""
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(report_of, url))["sessions"]["running"] != sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.2)

"""What is said in a session belongs to that session: no HTTP answer holds a word of it, whoever asks."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from performer.loop import Performer
from protocol import messages as m
from protocol.media import MediaUnit
from shared.config import load_config
from shared.errors import LinkClosed
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.processes.model import link_shape
from thinker.engine.engine import EngineOptions, ThinkerEngine
from thinker.engine.pipeline import PipelineOptions

TYPED = "Pelicans whisper."
PATHS = ("", "healthz", "readyz", "metrics", "report", "nothing")


async def get(server: Any, path: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"{server.http}/{path}", **options)


@pytest.fixture
def engine(tiny_family: Family) -> Iterator[ThinkerEngine]:
    """Of `run_server`: the real one with the tiny model, on its thread, and a Performer on another."""
    link, performer_end = loopback_pair(link_shape(tiny_family, load_config("tiny")))
    options = EngineOptions(model="tiny", pin="off", pipeline=PipelineOptions(slots=1))
    engine = ThinkerEngine(tiny_family, lambda: {"performer": link}, options)
    performer = Performer(tiny_family, performer_end, slots=1, checked=True)

    def perform() -> None:
        with performer_end, suppress(LinkClosed):
            while True:
                performer.step()

    threads = [threading.Thread(target=engine.run), threading.Thread(target=perform)]
    for thread in threads:
        thread.start()
    yield engine
    engine.stop()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)


async def test_what_a_session_said_is_in_no_answer(run_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with run_server(token="client", operator_secret="operator") as server:
        async with await server.connect(m.Hello(token="client", texts=[TYPED])) as client:
            await client.start()
            said = [await client.next(m.TextDelta) for _ in TYPED.split()]
            assert "".join(delta.text for delta in said).strip() == TYPED
            await client.next(MediaUnit)
            during = await answers(server)
            await client.say(m.Bye())
            await client.closed()
        await server.until(lambda: server.engine.report().sessions.running == 0)
        after = await answers(server)
    for answer in (*during, *after):
        assert not [word for word in ("elican", "hisper") if word in answer]
    thinker = [record.getMessage() for record in caplog.records if record.name.startswith("thinker")]
    assert thinker
    assert not [line for line in thinker if "elican" in line or "hisper" in line]


async def answers(server: Any) -> list[str]:
    """Every HTTP answer, to a client and to the operator."""
    secrets = [{"authorization": f"Bearer {secret}"} for secret in ("client", "operator")]
    return [(await get(server, path, headers=headers)).text for path in PATHS for headers in secrets]

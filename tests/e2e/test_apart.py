"""Thinker and Performer started on two terminals: they find each other, in any order, or say why not."""

import signal
import socket
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest

from client.options import ClientOptions
from client.run import run_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def rendezvous() -> str:
    """A free address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def served_at(thinker: Any) -> str:
    url: str = thinker.wait_for(r"thinker: serving on (http://\S+)")[1]
    return url


def ask(url: str) -> tuple[int, str]:
    answer = httpx.get(url, timeout=20, trust_env=False)
    return answer.status_code, answer.text


def is_ready(url: str) -> bool:
    return ask(f"{url}/readyz") == (200, "ready")


async def hold_a_session(url: str) -> None:
    summary = await run_client(ClientOptions(url=url, texts=("hi",), seconds=1.6))
    assert summary.ended == "done"
    assert summary.units > 0
    assert summary.model == "tiny"


async def test_the_thinker_first_over_gloo(
    group: Any, rendezvous: str, eventually: Callable[..., None], report_of: Callable[[str], dict[str, Any]]
) -> None:
    common = "--config", "tiny", "--rendezvous", rendezvous, "--link", "gloo"
    thinker = group.start("thinker", *common, "--port", "0")
    url = served_at(thinker)
    thinker.wait_for(f"thinker: waiting for the performer at {rendezvous}\n")
    assert ask(f"{url}/readyz") == (503, "not ready yet")
    assert ask(f"{url}/healthz") == (200, "ok")
    performer = group.start("performer", *common)
    eventually(lambda: is_ready(url), "readiness")
    await hold_a_session(url)
    assert report_of(url)["link"] == "gloo"
    performer.process.send_signal(signal.SIGTERM)
    assert (performer.wait(), thinker.wait()) == (0, 1)
    assert thinker.output.splitlines()[-1] == "thinker: the performer has gone away"
    group.assert_nothing_left()


async def test_the_performer_first_on_one_host(
    group: Any, rendezvous: str, eventually: Callable[..., None]
) -> None:
    performer = group.start("performer", "--config", "tiny", "--rendezvous", rendezvous)
    performer.wait_for(f"performer: waiting for the thinker at {rendezvous}\n")
    thinker = group.start("thinker", "--config", "tiny", "--rendezvous", rendezvous, "--port", "0")
    url = served_at(thinker)
    eventually(lambda: is_ready(url), "readiness")
    assert "link shm, chosen because the two processes are on one host" in thinker.output
    await hold_a_session(url)
    thinker.process.send_signal(signal.SIGTERM)
    assert (thinker.wait(), performer.wait()) == (0, 1)
    assert performer.output.splitlines()[-1] == "performer: the thinker has ended"
    group.assert_nothing_left()


def test_different_configs_are_named_on_both_sides_and_can_be_corrected(
    group: Any, rendezvous: str, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    other = tmp_path / "other.toml"
    tiny = resources.files("configs").joinpath("tiny.toml").read_text(encoding="utf-8")
    other.write_text(tiny.replace("solver_steps = 2", "solver_steps = 3"))
    thinker = group.start("thinker", "--config", "tiny", "--rendezvous", rendezvous, "--port", "0")
    url = served_at(thinker)
    wrong = group.start("performer", "--config", str(other), "--rendezvous", rendezvous)
    assert wrong.wait() == 1
    thinker.wait_for("give both the same --config and weights\n")
    told = []
    for command, name in ((thinker, "thinker"), (wrong, "performer")):
        (line,) = [line for line in command.output.splitlines() if "rendezvous" in line]
        assert line.startswith(f"{name}: rendezvous: digest is ")
        assert "Traceback" not in command.output
        told.append(line.removeprefix(f"{name}: "))
    assert told[0] == told[1]
    right = group.start("performer", "--config", "tiny", "--rendezvous", rendezvous)
    eventually(lambda: is_ready(url), "readiness")
    thinker.process.send_signal(signal.SIGTERM)
    assert (thinker.wait(), right.wait()) == (0, 1)
    group.assert_nothing_left()


@pytest.mark.parametrize("name", ["thinker", "performer"])
def test_one_alone_can_be_ended_while_it_waits(group: Any, rendezvous: str, name: str) -> None:
    port = ["--port", "0"] if name == "thinker" else []
    alone = group.start(name, "--config", "tiny", "--rendezvous", rendezvous, *port)
    alone.wait_for("waiting for the ")
    alone.process.send_signal(signal.SIGINT)
    assert alone.wait() == 0, alone.output
    assert "Traceback" not in alone.output
    group.assert_nothing_left()


def test_a_port_in_use_ends_the_thinker_with_one_line(group: Any, rendezvous: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        thinker = group.start("thinker", "--config", "tiny", "--rendezvous", rendezvous, "--port", port)
        assert thinker.wait() == 1
    line = f"thinker: can't listen on 127.0.0.1:{port}: "
    assert sum(words.startswith(line) for words in thinker.output.splitlines()) == 1
    assert "Traceback" not in thinker.output
    group.assert_nothing_left()

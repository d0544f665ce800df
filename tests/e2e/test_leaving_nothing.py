"""However a session is ended: no process, file or shared memory stays, and what was recorded is kept."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import av
import pytest

from client.errors import ConnectionFailed
from client.options import ClientOptions
from client.run import run_client
from shared.processes.launch import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ReportOf = Callable[[str], dict[str, Any]]
Until = Callable[..., None]


def is_serving(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def seconds_of(recording: Path) -> float:
    """Decode all of a recording."""
    with av.open(str(recording)) as file:
        return sum(1 for _ in file.decode(video=0)) / 25


@pytest.fixture
def talking(group: Any, tmp_path: Path, report_of: ReportOf, eventually: Until) -> Any:
    """`live` at a terminal, in the middle of a session that is being recorded."""
    files = "--record", str(tmp_path / "out.mp4"), "--report", str(tmp_path / "report.json")
    live = group.start_at_terminal(
        "live", "--config", "tiny", "--port", "0", "--text", "hello", "--seconds", "600", *files
    )
    url = live.wait_for(r"the agent is at (http://\S+)\r\n")[1]
    eventually(lambda: report_of(url)["units"]["emitted"] >= 6, "a few units")
    assert len(group.pids()) == 3
    assert group.open_names() == set(), "what has a name can be left behind"
    return live


def end_by_ctrl_c(live: Any) -> None:
    live.type(b"\x03")


def end_by_closing_the_terminal(live: Any) -> None:
    live.close_terminal()


def end_by_termination(live: Any) -> None:
    live.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("end", [end_by_ctrl_c, end_by_closing_the_terminal, end_by_termination])
def test_an_end_in_order(group: Any, talking: Any, tmp_path: Path, end: Callable[[Any], None]) -> None:
    end(talking)
    group.assert_nothing_left()
    code = talking.wait()
    assert code == 0 or end is end_by_closing_the_terminal, "where nobody is left to be told it may be any"
    assert "Traceback" not in talking.output
    report = json.loads((tmp_path / "report.json").read_text())
    client = report["client"]
    assert client["ended"] == "stopped"
    heard_s = 0.16 * (client["units"] + client["gaps"]) + client["delay_s"]
    assert seconds_of(tmp_path / "out.mp4") == pytest.approx(heard_s, abs=0.03)  # whole frames
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.mp4", "report.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
@pytest.mark.parametrize("moment", ["children", "serving"])
def test_an_end_while_starting(group: Any, eventually: Until, number: signal.Signals, moment: str) -> None:
    port = free_port("127.0.0.1")
    live = group.start("live", "--config", "tiny", "--port", str(port), "--text", "hello")
    if moment == "children":  # which have not yet loaded anything
        eventually(lambda: len(group.pids()) == 3, "both processes")
    else:
        eventually(lambda: is_serving(port), "the server, which is there before the Performer is")
    live.process.send_signal(number)
    expected = {-signal.SIGKILL} if number == signal.SIGKILL else {130, 0}  # 0: it was quick to begin
    assert live.wait() in expected, live.output
    group.assert_nothing_left()
    assert "Traceback" not in live.output


def test_kill_9_of_the_launcher(group: Any, talking: Any) -> None:
    talking.process.kill()
    group.assert_nothing_left()


@pytest.mark.parametrize("name", ["thinker", "performer"])
def test_kill_9_of_one_process(group: Any, talking: Any, tmp_path: Path, name: str) -> None:
    (pid,) = group.pids(name)
    killed_at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert talking.wait() == 1
    group.assert_nothing_left()
    assert time.monotonic() - killed_at < 30, "it ends, and does not freeze"
    assert "Traceback" not in talking.output
    why = {"thinker": "the connection was lost", "performer": "the performer has gone away"}[name]
    assert any(line.startswith("live: ") and why in line for line in talking.output.splitlines())
    assert seconds_of(tmp_path / "out.mp4") > 0, "what was recorded until then is kept"


def test_a_performer_that_is_stuck(
    group: Any, tmp_path: Path, report_of: ReportOf, eventually: Until
) -> None:
    config = tmp_path / "impatient.toml"
    tiny = resources.files("configs").joinpath("tiny.toml").read_text(encoding="utf-8")
    config.write_text(f"solve_timeout_s = 3.0\n{tiny}")
    live = group.start("live", "--config", str(config), "--port", "0", "--text", "hello", "--seconds", "600")
    url = live.wait_for(r"the agent is at (http://\S+)\n")[1]
    eventually(lambda: report_of(url)["units"]["emitted"] >= 6, "a few units")
    (pid,) = group.pids("performer")
    os.kill(pid, signal.SIGSTOP)
    assert live.wait() == 1, live.output
    group.assert_nothing_left()
    assert "the performer sent no latents of unit" in live.output
    assert "Traceback" not in live.output


@pytest.mark.parametrize("hung_up", ["thinker", "performer"])
async def test_closing_either_terminal_of_two(
    group: Any, report_of: ReportOf, tmp_path: Path, hung_up: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        common = "--config", "tiny", "--rendezvous", f"127.0.0.1:{listener.getsockname()[1]}"
    commands = {
        "performer": group.start_at_terminal("performer", *common),
        "thinker": group.start_at_terminal("thinker", *common, "--port", "0"),
    }
    url = commands["thinker"].wait_for(r"thinker: serving on (http://\S+)\r\n")[1]
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        commands[hung_up].close_terminal()

    options = ClientOptions(url=url, texts=("hello",), seconds=600, record=tmp_path / "out.mp4")
    why = {"thinker": "shutting down", "performer": "the performer has gone away"}[hung_up]
    commands["thinker"].wait_for("thinker: ready")
    with pytest.raises(ConnectionFailed, match=why):
        await run_client(options, on_heard=hear)
    assert heard == ["hello "]
    group.assert_nothing_left()
    other = commands["performer" if hung_up == "thinker" else "thinker"]
    assert other.wait() == 1
    assert "Traceback" not in other.output
    assert seconds_of(tmp_path / "out.mp4") > 0

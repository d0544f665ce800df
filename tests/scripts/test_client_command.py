"""The command `client`: options, exit codes and messages, signals; in real processes."""

import argparse
import json
import os
import signal
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from client.errors import UsageError
from scripts.client import add_arguments, options_from, run

SERVER = """
import asyncio, sys
from websockets.asyncio.server import serve
from protocol import messages as m
from protocol.media import MediaKind, MediaUnit
from protocol.session import ServerProtocol

async def handler(connection):
    machine = ServerProtocol(token=sys.argv[1] or None)
    async for data in connection:
        for event in machine.receive(data):
            match event:
                case m.Hello():
                    await connection.send(machine.send(m.Ready(
                        session_id="s", resume_token="r", unit_ms=160, fps=25, frames_per_unit=4,
                        sample_rate=16000, width=32, height=32, input_width=32, input_height=32,
                        input_rate=16000, audio_codec="pcm16", video_codec="jpeg", model="echo")))
                case m.Text(text=text):
                    if text == "good ":
                        await connection.send(machine.send(m.Heard(request="say_it", unit=0)))
                    await connection.send(machine.send(m.TextDelta(text=text, unit=0)))
                case MediaUnit():
                    machine.offer(MediaUnit(
                        kind=MediaKind.AGENT, unit=event.unit, pts_us=event.pts_us, audio=event.audio))
                case m.Bye():
                    print("bye", flush=True)
                case _ if hasattr(event, "code"):
                    await connection.close(event.code, event.reason)
        while (media := machine.next_media()) is not None:
            await connection.send(media)

async def main():
    async with serve(handler, "127.0.0.1", 0, subprotocols=[m.SUBPROTOCOL]) as listening:
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()

asyncio.run(main())
"""

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


class Server:
    """A small Thinker in a process of its own."""

    def __init__(self, token: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, token], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.url = f"127.0.0.1:{self.output.readline().strip()}"

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.output.close()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scripts.main", "client", *arguments]


def client(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "user.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(np.full(8_000, 3000, "<i2").tobytes())
    return path


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def test_devices_are_the_default_and_a_file_turns_them_off() -> None:
    options = options_from(parse())
    assert (options.camera, options.microphone, options.speaker, options.window) == (
        "0",
        "default",
        "default",
        True,
    )
    options = options_from(parse("--input", "x.wav"))
    assert (options.camera, options.microphone, options.speaker, options.window) == (None, None, None, False)
    options = options_from(parse("--camera", "off", "--microphone", "off", "--speaker", "3", "--no-window"))
    assert (options.camera, options.microphone, options.speaker, options.window) == (None, None, "3", False)
    options = options_from(parse("--input", "x.wav", "--speaker", "default", "--window"))
    assert (options.speaker, options.window) == ("default", True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--input", "x.wav", "--camera", "1"],
        ["--seconds", "-1"],
        ["--record-both"],
        ["--text", ""],
        ["--url", "ftp://x"],
    ],
)
def test_contradictions_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        options_from(parse(*arguments))
    assert run(parse(*arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("client: ")
    assert error.count("\n") == 1


def test_a_missing_file_and_a_missing_server_are_one_line(tmp_path: Path, sound: Path) -> None:
    missing = client("--input", str(tmp_path / "none.mp4"))
    assert missing.returncode == 2
    assert missing.stderr == f"client: {tmp_path}/none.mp4: no such file\n"
    nobody = client("--input", str(sound), "--url", "127.0.0.1:9")
    assert nobody.returncode == 1
    assert nobody.stderr == "client: ws://127.0.0.1:9/v1/session: no server there: connection refused\n"


def test_a_session_with_a_file(tmp_path: Path, sound: Path) -> None:
    out, report = tmp_path / "out.mp4", tmp_path / "report.json"
    with Server() as server:
        done = client(
            *("--url", server.url, "--input", str(sound), "--text", "good ", "--text", "day"),
            *("--seconds", "0.8", "--record", str(out), "--report", str(report)),
        )
        assert done.returncode == 0, done.stderr
        assert server.output.readline() == "bye\n"
    assert done.stdout == "understood: say it\ngood day\n"
    assert f"recorded {out}" in done.stderr
    assert out.stat().st_size > 1000
    summary = json.loads(report.read_text())
    assert summary["units"] == 5
    assert summary["heard"] == "good day"


def test_a_wrong_token(sound: Path) -> None:
    with Server(token="secret") as server:
        refused = client("--url", server.url, "--input", str(sound), "--token", "guess")
    assert refused.returncode == 2
    assert "--token" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_session_in_order(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out.mp4"
    arguments = (
        "--camera",
        "off",
        "--microphone",
        "off",
        "--speaker",
        "off",
        "--no-window",
        "--text",
        "hello",
    )
    with Server() as server:
        process = subprocess.Popen(
            command("--url", server.url, *arguments, "--record", str(out)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        assert process.stdout is not None
        assert process.stdout.read(5) == b"hello"  # it is heard: the session is under way
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert server.output.readline() == "bye\n"
    assert out.stat().st_size > 1000
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.mp4"]


def test_help_teaches() -> None:
    shown = client("--help")
    assert shown.returncode == 0
    for word in ("--input", "--list-devices", "examples:", "exit codes:"):
        assert word in shown.stdout

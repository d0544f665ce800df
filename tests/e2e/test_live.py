"""`live` as a user runs it, and a client with all kinds of media on a running pair."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from client.options import ClientOptions
from client.run import run_client
from scripts.main import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MakeMedia = Callable[..., Path]
UNIT_S = 0.16
FRAME_S = 0.04
UNEVEN = [0.0, 0.04, 0.5, 0.52, 0.9, 1.6, 1.61, 1.9, 2.4, 2.9]

MEDIA: dict[str, dict[str, Any]] = {
    "48 kHz stereo.mp4": {"rate": 48_000},
    "44.1 kHz.mkv": {"rate": 44_100},
    "8 kHz mono.wav": {"rate": 8_000, "layout": "mono", "size": None},
    "no sound.mp4": {"rate": None},
    "no picture.m4a": {"size": None},
    "odd size 177x99.mkv": {"size": (177, 99), "rate": 44_100},
    "portrait.mp4": {"size": (90, 160)},
    "variable frame rate.mp4": {"times": UNEVEN},
    "sound alone.wav": {"rate": 48_000, "size": None},
    "picture alone.png": {"rate": None, "times": [0.0]},
}
STAGES = {"encode", "state", "send", "append", "solve", "return", "decode", "remember"}


def check_recording(path: Path, *, width: int = 64) -> tuple[np.ndarray, float]:
    """H.264 at 25 fps, sound of the same length; returns the pictures [T, H, W, 3] and the seconds."""
    with av.open(str(path)) as file:
        (video,) = file.streams.video
        assert video.codec_context.name == "h264"
        assert video.average_rate == 25
        assert (video.width, video.height) == (width, 64)
        pictures = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video)])
    with av.open(str(path)) as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
        seconds = samples / file.streams.audio[0].rate
    assert abs(len(pictures) / 25 - seconds) <= UNIT_S
    return pictures, len(pictures) / 25


def check_report(report: dict[str, Any]) -> None:
    """Every field of the report (docs/operations.md), and each of a possible value."""
    units = report["units"]
    assert units["emitted"] > 0
    assert units["late"] >= 0
    assert units["dropped"] >= 0
    assert report["stages_ms"].keys() == STAGES
    spreads = [
        report[f"{name}_ms"] for name in ("model_side", "unit_interval", "solve_plus_exchange", "loop")
    ]
    for spread in [*report["stages_ms"].values(), *spreads]:
        assert 0 < spread["p50"] <= spread["p99"] < 60_000
    assert report["deadline_ms"] == 160
    assert isinstance(report["realtime"], bool)
    assert report["event_loop_lag_ms"]["p99"] >= 0
    assert 0 <= report["av_skew_ms"]["p50"] <= report["av_skew_ms"]["max"]
    assert report["slice_bytes"] > 1000
    assert all(10 < report["rss_mb"][process] < 4_000 for process in ("thinker", "performer"))
    assert 0 < report["time_to_first_unit_s"] < 300
    assert report["restarts"] == 0


def live(group: Any, tmp_path: Path, *arguments: str) -> tuple[Any, dict[str, Any]]:
    """Run `live` to its end, with a recording and a report."""
    files = "--record", str(tmp_path / "out.mp4"), "--report", str(tmp_path / "report.json")
    command = group.start("live", "--config", "tiny", "--port", "0", *files, *arguments)
    assert command.wait() == 0, command.output
    assert "Traceback" not in command.output
    group.assert_nothing_left()
    return command, json.loads((tmp_path / "report.json").read_text())


def test_a_file_and_typed_text(group: Any, make_media: MakeMedia, tmp_path: Path) -> None:
    file = make_media("me.mp4", seconds=4.0)
    command, report = live(group, tmp_path, "--input", str(file), "--text", "good", "--text", "day")
    _, seconds = check_recording(tmp_path / "out.mp4")
    client = report["client"]
    assert seconds == pytest.approx(
        UNIT_S * (client["units"] + client["gaps"]) + client["delay_s"], abs=FRAME_S
    )
    assert client["units_sent"] in {25, 26}, "AAC adds some silence at the end"
    check_report(report)
    assert (report["link"], report["pacing"]) == ("shm", "eager")
    assert report["text"] == client["said"].strip() == "good day"
    assert "good day" in command.output
    assert f"recorded {tmp_path}/out.mp4" in command.output


def test_every_other_choice(group: Any, make_media: MakeMedia, tmp_path: Path) -> None:
    file = make_media("me.png", rate=None, times=[0.0], size=(177, 99))
    choices = ["--link", "gloo", "--pacing", "boundary", "--seed", "7", "--token", "secret", "--record-both"]
    _, report = live(group, tmp_path, "--input", str(file), "--seconds", "2.5", *choices)
    pictures, _ = check_recording(tmp_path / "out.mp4", width=128)
    assert pictures[-1, :, :64].max() > 80, "the user at the left"
    check_report(report)
    assert (report["link"], report["pacing"], report["seed"], report["text"]) == ("gloo", "boundary", 7, "")
    assert report["stages_ms"]["decode"]["p50"] > 0


@pytest.mark.parametrize("name", MEDIA)
async def test_any_media_plays_the_user(
    running_pair: str, make_media: MakeMedia, tmp_path: Path, name: str
) -> None:
    form = MEDIA[name]
    out = tmp_path / "out.mp4"
    options = ClientOptions(
        url=running_pair, input=make_media(name, **form), seconds=2.4, record=out, record_both=True
    )
    summary = await run_client(options)
    assert (summary.ended, summary.units_sent) == ("done", 15)
    pictures, seconds = check_recording(out, width=128)
    assert seconds == pytest.approx(UNIT_S * (summary.units + summary.gaps) + summary.delay_s, abs=FRAME_S)
    user = pictures[:, :, :64].astype(int)
    seen_yet = np.maximum.accumulate(user.max((1, 2, 3)) > 150)  # until his first picture there is darkness
    user = user[seen_yet] if seen_yet.any() else user
    seen = form.get("size", True) is not None
    moving = seen and form.get("times") != [0.0]
    assert bool(user.max() > 150) == seen, "the white bar"
    assert bool((user.max(axis=0) - user.min(axis=0)).max() > 60) == moving


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that are not what they should be."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "broken.mp4").write_bytes(b"no film" * 100)
    (folder / "empty.mp4").touch()
    (folder / "key.toml").write_text('family = "pocket"\nfoo = 1\n')
    (folder / "inner.toml").write_text('family = "pocket"\n[model.video]\nwidht = 1\n')
    (folder / "type.toml").write_text('family = "pocket"\nthreads = "many"\n')
    (folder / "family.toml").write_text('family = "nobody"\n')
    (folder / "no.toml").write_text("family = \n")
    return folder


WRONG = [
    (2, ["--input", "{}/broken.mp4"], "broken.mp4"),
    (2, ["--input", "{}/none.mp4"], "none.mp4: no such file"),
    (2, ["--input", "{}/empty.mp4"], "empty.mp4: the file is empty"),
    (2, ["--input", "{}"], "not a file"),
    (2, ["--config", "nobody"], "'nobody'"),
    (2, ["--config", "{}/none.toml"], "none.toml"),
    (2, ["--config", "{}/key.toml"], "key.foo"),
    (2, ["--config", "{}/inner.toml"], "model.video.widht"),
    (2, ["--config", "{}/type.toml"], "threads='many'"),
    (2, ["--config", "{}/family.toml"], "'nobody'"),
    (2, ["--config", "{}/no.toml"], "no.toml"),
    (2, ["--link", "carrier"], "'carrier'"),
    (1, ["--link", "xccl"], "link xccl is not available: it needs an Intel GPU"),
    (1, ["--device", "cuda:99"], "--device cuda:99"),
    (2, ["--device", "abacus"], "--device abacus"),
    (2, ["--seconds", "0"], "seconds"),
    (2, ["--seconds", "soon"], "--seconds"),
    (2, ["--record", "{}/none/out.mp4"], "none/out.mp4"),
    (2, ["--report", "{}/none/report.json"], "none/report.json"),
    (2, ["--record-both"], "--record-both needs --record"),
    (2, ["--text", ""], "text"),
    (2, ["--port", "99999"], "--port"),
    (2, ["--pacing", "slow"], "--pacing"),
    (2, ["--colour"], "--colour"),
]


@pytest.fixture
def never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before a process is started."""

    def start(*command: str) -> None:
        pytest.fail(f"started {command}")

    monkeypatch.setattr("shared.processes.children.ChildProcesses.start", start)
    monkeypatch.setattr("scripts.live.on_signals", lambda _stop: None)


@pytest.mark.usefixtures("never_starts")
@pytest.mark.parametrize(("code", "arguments", "words"), WRONG, ids=[" ".join(row[1]) for row in WRONG])
def test_what_is_wrong_is_one_line(
    wrong: Path, capfd: pytest.CaptureFixture[str], code: int, arguments: list[str], words: str
) -> None:
    given = ["--config", "tiny", "--port", "0", *(argument.format(wrong) for argument in arguments)]
    with pytest.raises(SystemExit) as ended:  # argparse ends by itself
        sys.exit(main(["live", *given]))
    assert ended.value.code == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("live: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.usefixtures("never_starts")
def test_a_port_in_use_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["live", "--config", "tiny", "--port", str(port)]) == 1
    assert capfd.readouterr().err == (
        f"live: can't listen on 127.0.0.1:{port}: Address already in use; see --host and --port\n"
    )


def test_a_fault_is_one_line_of_a_process_too(group: Any, wrong: Path) -> None:
    broken = group.start("live", "--input", str(wrong / "broken.mp4"))
    assert broken.wait() == 2
    assert broken.output.startswith(f"live: {wrong}/broken.mp4: ")
    assert broken.output.count("\n") == 1
    group.assert_nothing_left()

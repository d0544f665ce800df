"""The window's process, on a virtual desktop: it paints, ends with its input, and its end is noticed."""

import io
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from client.errors import MediaDeviceError
from client.window import Window, _Latest

pytest.importorskip("cv2")


def wait_for(true: object, seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.05)
    return bool(true())  # type: ignore[operator]


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A virtual X server."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    reading, writing = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "800x600x24", "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        display = f":{pipe.readline().strip()}"
    monkeypatch.setenv("DISPLAY", display)
    yield display
    server.terminate()
    server.wait()


def brightest(display: str, path: Path) -> float:
    """Mean red of the reddest part of the screen."""
    path.unlink(missing_ok=True)
    subprocess.run(
        ["ffmpeg", "-v", "error", "-f", "x11grab", "-i", display, "-frames:v", "1", str(path)], check=True
    )
    red = simplejpeg.decode_jpeg(path.read_bytes())[..., 0]
    return float((red > 200).mean())


@pytest.mark.slow
def test_it_paints_and_ends_with_its_input(desktop: str, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    window = Window("test", width=64, height=64)
    picture = simplejpeg.encode_jpeg(np.full((64, 64, 3), (250, 10, 10), np.uint8))

    def is_red() -> bool:
        window.show(picture)
        return brightest(desktop, tmp_path / "screen.jpg") > 0.2

    assert wait_for(is_red)
    assert not window.closed
    assert not window.failed
    window.close()
    assert window._process.returncode == 0


@pytest.mark.slow
def test_a_desktop_that_goes_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":999")
    window = Window("test", width=64, height=64)
    assert wait_for(lambda: window.failed)
    window.show(b"nothing happens")
    assert not window.closed
    window.close()


@pytest.mark.slow
def test_showing_never_blocks(desktop: str) -> None:
    window = Window("test", width=64, height=64)
    began = time.monotonic()
    for _ in range(100):
        window.show(bytes(50_000))  # no picture either: it is left out
    assert time.monotonic() - began < 5
    window.close()


def test_the_latest_picture_wins_and_a_cut_one_is_the_end() -> None:
    whole = b"".join(struct.pack("<I", len(data)) + data for data in (b"one", b"two", b"three"))
    pictures = _Latest(io.BytesIO(whole))
    assert pictures.ended.wait(5)
    assert pictures.take() == b"three"
    assert pictures.take() is None
    assert _Latest(io.BytesIO(whole[:2])).ended.wait(5)


def test_without_a_desktop_there_is_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(MediaDeviceError, match="no desktop"):
        Window("test", width=64, height=64)


def test_the_window_s_process_never_imports_pyav() -> None:
    code = "import sys, client.window; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

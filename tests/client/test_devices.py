"""Microphone and loudspeaker on a real sound server without a sound card: what goes in comes out."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from client import devices
from client.devices import DeviceUser, load_sounddevice, open_devices
from client.errors import MediaDeviceError

ROOT = Path(__file__).resolve().parents[2]
ASOUNDRC = """
pcm.!default { type pulse }
ctl.!default { type pulse }
pcm.vspk { type pulse device vspk hint { show on description "virtual speaker" } }
pcm.vmic { type pulse device vmic_src hint { show on description "virtual microphone" } }
"""
MODULES = (
    "module-native-protocol-unix",
    "module-null-sink sink_name=vmic rate=48000",
    "module-null-sink sink_name=vspk rate=48000",
    "module-remap-source source_name=vmic_src master=vmic.monitor",
)
TONE = Path("tone.raw")


def heard(pcm: npt.NDArray[np.int16], rate: int) -> float:
    """Share of the sound's power within 20 Hz of 440."""
    power = np.abs(np.fft.rfft(pcm.astype(float) * np.hanning(len(pcm)))) ** 2
    around = np.abs(np.fft.rfftfreq(len(pcm), 1 / rate) - 440) < 20
    return float(power[around].sum() / (power.sum() + 1e-9))


@pytest.fixture
def pulse(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a private PulseAudio: a microphone into which can be played, and a loudspeaker."""
    if shutil.which("pulseaudio") is None:
        pytest.skip("pulseaudio is not installed")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    (tmp_path / ".asoundrc").write_text(ASOUNDRC)
    environment = os.environ | {
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(runtime),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    server = subprocess.Popen(
        ["pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", *(f"--load={m}" for m in MODULES)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            if (
                subprocess.run(
                    ["pactl", "info"], env=environment, capture_output=True, check=False
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)
        else:
            pytest.skip("pulseaudio does not start here")
        yield environment
    finally:
        server.terminate()
        server.wait()


def python(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MICROPHONE = """
import numpy as np
from client.devices import open_devices
user = open_devices(microphone="vmic", camera=None)
user.begin(64, 64)
parts = [user.take().pcm for _ in range(20)]
user.close()
np.save("{out}", np.concatenate(parts))
"""

SPEAKER = """
import time, numpy as np
from client.devices import Loudspeaker
from client.playout import Playout, PlayoutLimits
playout = Playout(sample_rate=16000, unit_us=160_000, limits=PlayoutLimits(most_ms=5000))
t = np.arange(16000 * 2) / 16000
tone = np.round(9000 * np.sin(2 * np.pi * 440 * t)).astype(np.int16)
for unit in range(12):
    playout.push(unit * 160_000, tone[unit * 2560 : (unit + 1) * 2560], [])
speaker = Loudspeaker(playout, rate=16000, name="vspk")
while not playout.underruns and speaker.alive:
    time.sleep(0.1)
time.sleep(0.5)
print(playout.latency_us, playout.heard_us, playout.underruns)
speaker.close()
"""


def play_into_microphone(environment: dict[str, str], tmp_path: Path) -> "subprocess.Popen[bytes]":
    time_axis = np.arange(48_000 * 30) / 48_000
    tone = np.round(12_000 * np.sin(2 * np.pi * 440 * time_axis)).astype("<i2")
    (tmp_path / TONE).write_bytes(tone.tobytes())
    return subprocess.Popen(
        ["pacat", "-p", "-d", "vmic", "--rate=48000", "--channels=1", "--format=s16le", str(tmp_path / TONE)],
        env=environment,
    )


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait()


@pytest.mark.slow
def test_the_microphone_hears(pulse: dict[str, str], tmp_path: Path) -> None:
    player = play_into_microphone(pulse, tmp_path)
    try:
        python(MICROPHONE.format(out=tmp_path / "heard.npy"), pulse)
    finally:
        stop(player)
    pcm = np.load(tmp_path / "heard.npy")
    assert len(pcm) == 20 * 2560
    assert heard(pcm[-16_000:], 16_000) > 0.95
    assert np.abs(pcm[-16_000:]).max() > 3000


@pytest.mark.slow
def test_the_loudspeaker_sounds(pulse: dict[str, str], tmp_path: Path) -> None:
    command = ["parec", "-d", "vspk.monitor", "--rate=16000", "--channels=1", "--format=s16le"]
    with (tmp_path / "out.raw").open("wb") as file:
        recorder = subprocess.Popen(command, stdout=file, env=pulse)
        try:
            latency, position, underruns = map(int, python(SPEAKER, pulse).split())
        finally:
            stop(recorder)
    assert 0 < latency < 1_000_000
    assert position >= 12 * 160_000 - latency
    assert underruns == 1  # the end
    pcm = np.fromfile(tmp_path / "out.raw", "<i2")
    sounded = pcm[np.abs(pcm) > 1000]  # a busy machine tears holes into it, and loses nothing
    assert len(sounded) > 0.7 * 12 * 2560
    assert heard(pcm, 16_000) > 0.5


@pytest.mark.slow
def test_devices_are_listed_by_name(pulse: dict[str, str]) -> None:
    listed = python("from client.devices import list_devices; print('\\n'.join(list_devices()))", pulse)
    assert "vspk" in listed
    assert "vmic" in listed
    assert "--microphone" in listed


@pytest.mark.slow
def test_an_unknown_device_is_a_warning_and_life_goes_on(pulse: dict[str, str]) -> None:
    code = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from client.devices import open_devices
user = open_devices(microphone="no such thing", camera=None)
print(user.has_microphone, len(user.take().pcm))
"""
    assert python(code, pulse) == "False 2560\n"


def test_without_portaudio_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr(devices.importlib, "import_module", missing)
    with pytest.raises(MediaDeviceError, match="apt install libportaudio2"):
        load_sounddevice()


def test_without_sounddevice_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MediaDeviceError, match="pip install"):
        load_sounddevice()


def test_a_user_without_devices_keeps_time_by_itself() -> None:
    user = DeviceUser(microphone=None, webcam=None)
    user.begin(64, 64)
    began = time.monotonic()
    for _ in range(3):
        part = user.take()
        assert part.frames == []
        assert not part.pcm.any()
    assert time.monotonic() - began >= 0.4
    user.close()


def test_nothing_is_opened_that_is_not_wanted() -> None:
    user = open_devices(microphone=None, camera=None)
    assert (user.has_microphone, user.has_camera) == (False, False)
    user.close()


class FakeMicrophone:
    """Gives what it is told, to show what happens when a device stops and comes back."""

    name = "fake"

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.timeouts: list[float] = []

    def read(self, count: int, timeout_s: float) -> npt.NDArray[np.int16]:
        self.timeouts.append(timeout_s)
        return np.full(min(count, self.lengths.pop(0)), 5, np.int16)

    def clear(self) -> None:
        """Nothing was recorded."""

    def close(self) -> None:
        """Nothing to let go of."""


def test_a_microphone_that_stops_is_silence_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    microphone = FakeMicrophone([2560, 1000, 0, 2560, 2560])
    user = DeviceUser(microphone=microphone, webcam=None)  # type: ignore[arg-type]
    user.begin(64, 64)
    sounds = [int(user.take().pcm.astype(bool).sum()) for _ in range(5)]
    assert sounds == [2560, 1000, 0, 2560, 2560]
    assert microphone.timeouts == [0.32, 0.32, 0.0, 0.0, 0.32]
    assert [record.message.split()[2] for record in caplog.records] == ["gives", "is"]

"""Microphone, loudspeaker, and the user who sits in front of them. Sound devices go through sounddevice.

Devices are opened at their own rate, since many refuse 16 kHz, and soxr converts on the way. sounddevice is
imported when first used: it needs the system's PortAudio, and a headless client needs neither.
"""

import collections
import importlib
import logging
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from client.camera import Webcam, list_cameras
from client.decode import Pcm, Samples
from client.errors import MediaDeviceError
from client.media import RATE, UNIT_S, UNIT_SAMPLES, UserPart
from client.playout import Playout

log = logging.getLogger(__name__)

DEFAULT = "default"
BACKLOG_S = 0.5  # sound of the microphone that nobody fetched; the oldest goes first
SILENT_S = 2 * UNIT_S  # a microphone that gives nothing for so long is not waited for
START_S = 5.0  # a sound server under load takes its time
DEAD_S = 5.0  # a loudspeaker that asks for nothing for so long is gone
CHUNK_MS = 10


def load_sounddevice() -> ModuleType:
    """The module sounddevice.

    Raises:
        MediaDeviceError: when it or the PortAudio library is not installed.
    """
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise MediaDeviceError(
            "microphone and loudspeaker need sounddevice: pip install 'thinker-performer[client]'"
        ) from error
    except OSError as error:
        raise MediaDeviceError(
            "microphone and loudspeaker need PortAudio: apt install libportaudio2 (Debian, Ubuntu)"
        ) from error


def list_devices() -> list[str]:
    """Lines that name every device, with the number or name to choose it by."""
    lines = ["Cameras (--camera NUMBER):", *(list_cameras() or ["  none"]), ""]
    try:
        found = load_sounddevice().query_devices()
    except MediaDeviceError as error:
        return [*lines, f"Sound: {error}"]
    for title, option, channels in (
        ("Microphones", "--microphone", "max_input_channels"),
        ("Loudspeakers", "--speaker", "max_output_channels"),
    ):
        lines.append(f"{title} ({option} NUMBER or part of the name):")
        fitting = [
            f"{device['index']:>3}  {device['name']} ({device['default_samplerate']:.0f} Hz)"
            for device in found
            if device[channels] > 0
        ]
        lines += [*(fitting or ["  none"]), ""]
    return lines


def _find(sounddevice: ModuleType, name: str, kind: str) -> dict[str, Any]:
    """The device of a name or number; `kind` is input or output."""
    which = None if name == DEFAULT else int(name) if name.isdecimal() else name
    try:
        device: dict[str, Any] = sounddevice.query_devices(which, kind)
    except (ValueError, sounddevice.PortAudioError) as error:
        if which is None:
            raise MediaDeviceError(f"the system has no sound {kind}") from error
        raise MediaDeviceError(f"no sound {kind} {name!r} (--list-devices shows what there is)") from error
    return device


class Microphone:
    """Records at the device's own rate; `read` gives 16 kHz mono.

    Raises:
        MediaDeviceError: when there is no such device or it can't be opened.
    """

    def __init__(self, name: str = DEFAULT) -> None:
        sounddevice = load_sounddevice()
        device = _find(sounddevice, name, "input")
        rate = round(device["default_samplerate"])
        self.name = str(device["name"])
        self._resampler = soxr.ResampleStream(rate, RATE, 1, dtype="float32")
        self._most = round(BACKLOG_S * rate)
        self._blocks: collections.deque[Samples] = collections.deque()
        self._waiting = 0
        self._news = threading.Condition()
        self._ready: Samples = np.zeros(0, np.float32)
        self.lost_samples = 0
        try:
            self._stream = sounddevice.InputStream(
                device=device["index"],
                samplerate=rate,
                channels=min(2, device["max_input_channels"]),
                dtype="float32",
                callback=self._recorded,
            )
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise MediaDeviceError(f"microphone {self.name}: {error}") from error

    def wait_started(self, timeout_s: float) -> bool:
        """Whether the first sound came in this time."""
        with self._news:
            return self._news.wait_for(lambda: bool(self._blocks), timeout_s)

    def clear(self) -> None:
        """Forget what was recorded so far."""
        with self._news:
            self._blocks.clear()
            self._waiting = 0
        self._ready = self._ready[:0]

    def read(self, count: int, timeout_s: float) -> Pcm:
        """The next `count` samples; fewer when the device gave nothing for `timeout_s`."""
        while len(self._ready) < count:
            with self._news:
                if not self._news.wait_for(lambda: bool(self._blocks), timeout_s):
                    break
                raw = np.concatenate(list(self._blocks))
                self._blocks.clear()
                self._waiting = 0
            self._ready = np.concatenate([self._ready, self._resampler.resample_chunk(raw)])
        given, self._ready = self._ready[:count], self._ready[count:]
        return np.round(given.clip(-1.0, 1.0) * 32767).astype(np.int16)

    def close(self) -> None:
        """Let go of the device."""
        self._stream.close()
        if self.lost_samples:
            log.warning(
                "microphone %s: %d samples came too fast and were dropped", self.name, self.lost_samples
            )

    def _recorded(self, block: Samples, _count: int, _time: object, _status: object) -> None:
        """Called by PortAudio on its own thread."""
        with self._news:
            self._blocks.append(block.mean(axis=1))
            self._waiting += len(block)
            while self._waiting > self._most:
                gone = len(self._blocks.popleft())
                self._waiting -= gone
                self.lost_samples += gone
            self._news.notify()


class Loudspeaker:
    """Pulls from a playout whenever the device wants sound, and tells it how long the device takes.

    Args:
        playout: where the sound comes from.
        rate: of the playout.
        name: of the device, its number, or `default`.

    Raises:
        MediaDeviceError: when there is no such device or it can't be opened.
    """

    def __init__(self, playout: Playout, *, rate: int, name: str = DEFAULT) -> None:
        sounddevice = load_sounddevice()
        device = _find(sounddevice, name, "output")
        own_rate = round(device["default_samplerate"])
        self.name = str(device["name"])
        self._playout = playout
        self._chunk = rate * CHUNK_MS // 1000
        self._resampler = soxr.ResampleStream(rate, own_rate, 1, dtype="float32")
        self._ready: Samples = np.zeros(0, np.float32)
        self._last_wanted = time.monotonic()
        try:
            self._stream = sounddevice.OutputStream(
                device=device["index"],
                samplerate=own_rate,
                channels=min(2, device["max_output_channels"]),
                dtype="float32",
                callback=self._wanted,
            )
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise MediaDeviceError(f"loudspeaker {self.name}: {error}") from error
        playout.latency_us = round(self._stream.latency * 1_000_000)

    @property
    def alive(self) -> bool:
        """Whether the device still asks for sound; an unplugged one just stops."""
        return time.monotonic() - self._last_wanted < DEAD_S

    def close(self) -> None:
        """Let go of the device."""
        self._stream.close()

    def _wanted(self, out: npt.NDArray[np.float32], count: int, _time: object, _status: object) -> None:
        """Called by PortAudio on its own thread."""
        self._last_wanted = time.monotonic()
        while len(self._ready) < count:
            sound = self._playout.pull(self._chunk).astype(np.float32) / 32768
            self._ready = np.concatenate([self._ready, self._resampler.resample_chunk(sound)])
        out[:] = self._ready[:count, None]
        self._ready = self._ready[count:]


class DeviceUser:
    """A person in front of camera and microphone; either may be missing or go missing, the other goes on.

    The microphone keeps the time of the units. While it gives nothing, or without one, this class does, by
    deadlines that don't add up errors.
    """

    live = True
    ended = False

    def __init__(self, *, microphone: Microphone | None, webcam: Webcam | None) -> None:
        self._microphone = microphone
        self._webcam = webcam
        self.has_microphone = microphone is not None
        self.has_camera = webcam is not None
        self._hears = self.has_microphone
        self._closed = threading.Event()
        self._unit_ends = 0.0

    def begin(self, width: int, height: int) -> None:
        """The session starts now: what was recorded while waiting for it would only be lag."""
        if self._webcam is not None:
            self._webcam.begin(width, height)
        if self._microphone is not None:
            self._microphone.clear()
        self._unit_ends = time.monotonic()

    def take(self) -> UserPart:
        """Wait until a unit has been recorded and return it."""
        self._unit_ends += UNIT_S
        if not self._hears:
            self._closed.wait(max(0.0, self._unit_ends - time.monotonic()))
        pcm = np.zeros(UNIT_SAMPLES, np.int16)
        if self._microphone is not None:
            recorded = self._microphone.read(UNIT_SAMPLES, SILENT_S if self._hears else 0.0)
            pcm[: len(recorded)] = recorded
            self._note(len(recorded) == UNIT_SAMPLES, self._microphone.name)
        if self._hears:
            self._unit_ends = time.monotonic()
        frames = self._webcam.latest(time.monotonic()) if self._webcam is not None else []
        return UserPart(pcm=pcm, frames=frames)

    def close(self) -> None:
        """Let go of the devices."""
        self._closed.set()
        if self._microphone is not None:
            self._microphone.close()
        if self._webcam is not None:
            self._webcam.close()

    def _note(self, hears: bool, name: str) -> None:
        if hears != self._hears:
            what = "is back" if hears else "gives nothing: unplugged, or taken?"
            log.warning("microphone %s %s", name, what)
            self._hears = hears


def open_devices(*, microphone: str | None, camera: str | None, wait_camera_s: float = 5.0) -> DeviceUser:
    """Open what there is; what is missing is a warning. None as a name means: not wanted."""
    own_microphone, webcam = None, None
    if microphone is not None:
        try:
            own_microphone = Microphone(microphone)
            log.info("microphone: %s", own_microphone.name)
            own_microphone.wait_started(START_S)
        except MediaDeviceError as error:
            log.warning("going on without a microphone: %s", error)
    if camera is not None:
        try:
            webcam = Webcam(camera)
            if not webcam.wait_opened(wait_camera_s):
                log.warning("camera %s is slow to open: going on, it may still come", camera)
        except MediaDeviceError as error:
            log.warning("going on without a camera: %s", error)
    return DeviceUser(microphone=own_microphone, webcam=webcam)

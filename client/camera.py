"""The webcam, through OpenCV. It is imported when first used: a headless client never needs it."""

import collections
import importlib
import logging
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np

from client.errors import MediaDeviceError
from client.media import FPS, UNIT_FRAMES
from client.pictures import Picture, cover

log = logging.getLogger(__name__)

RETRY_S = 2.0
STALE_S = 1.0  # a camera that shows nothing new for so long shows nothing
KEPT_FRAMES = 32


def load_opencv() -> ModuleType:
    """The module cv2.

    Raises:
        MediaDeviceError: when it is not installed.
    """
    os.environ.setdefault("OPENCV_LOG_LEVEL", "OFF")  # what goes wrong is told here, in one line
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    try:
        return importlib.import_module("cv2")
    except ImportError as error:
        raise MediaDeviceError(
            f"a camera needs OpenCV: pip install 'thinker-performer[client]' ({error})"
        ) from error


class Webcam:
    """A camera read by its own thread: the latest picture wins, unplugging and coming back are noticed.

    Args:
        source: number of a camera, or a path or address that OpenCV can open.

    Raises:
        MediaDeviceError: when OpenCV is not installed.
    """

    def __init__(self, source: str) -> None:
        self._cv2 = load_opencv()
        self._source: int | str = int(source) if source.isdecimal() else source
        self._size = (64, 64)
        self._frames: collections.deque[tuple[float, Picture]] = collections.deque(maxlen=KEPT_FRAMES)
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="webcam", daemon=True)
        self._thread.start()

    def wait_opened(self, timeout_s: float) -> bool:
        """Whether a picture came, or opening failed, in this time; some cameras take minutes."""
        return self._tried.wait(timeout_s)

    def begin(self, width: int, height: int) -> None:
        """The session starts: from now on pictures are cut to this size."""
        self._size = (width, height)
        self._frames.clear()

    def latest(self, until: float) -> list[Picture]:
        """The four pictures of the unit that ends at `until` (time.monotonic): each the latest by its time.

        Empty when the camera shows nothing.
        """
        kept = list(self._frames)
        if not kept or until - kept[-1][0] > STALE_S:
            return []
        pictures = []
        for index in range(UNIT_FRAMES):
            due = until - (UNIT_FRAMES - 1 - index) / FPS
            in_time = [picture for taken, picture in kept if taken <= due]
            pictures.append(in_time[-1] if in_time else kept[0][1])
        return pictures

    def close(self) -> None:
        """Let go of the camera."""
        self._stop.set()
        self._thread.join(timeout=1.0)  # a driver may hang; the thread is a daemon

    def _work(self) -> None:
        complained = False
        while not self._stop.is_set():
            capture = self._cv2.VideoCapture(self._source)
            if capture.isOpened():
                log.info("camera %s is open", self._source)
                self._read(capture)
                complained = False
            capture.release()
            self._tried.set()
            if not complained and not self._stop.is_set():
                log.warning("camera %s shows nothing: missing, unplugged or taken", self._source)
                complained = True
            self._stop.wait(RETRY_S)

    def _read(self, capture: Any) -> None:
        """Read until the camera is gone; drivers say True even after unplugging, so look at its file too."""
        while not self._stop.is_set() and self._plugged():
            good, picture = capture.read()
            if not good:
                return
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "bgr24")
            self._frames.append((time.monotonic(), cover(frame, *self._size)))
            self._tried.set()

    def _plugged(self) -> bool:
        if isinstance(self._source, str) or sys.platform != "linux":
            return True
        return Path(f"/dev/video{self._source}").exists()


def list_cameras() -> list[str]:
    """One line for each camera that the system tells of; OpenCV itself can't say."""
    if sys.platform != "linux":
        return ["cameras can't be listed here: try 0, 1, …"]
    lines = []
    nodes = Path("/sys/class/video4linux").glob("video*")
    for node in sorted(nodes, key=lambda node: (len(node.name), node)):
        name = (node / "name").read_text(errors="replace").strip()
        lines.append(f"{node.name.removeprefix('video'):>3}  {name}")
    return lines

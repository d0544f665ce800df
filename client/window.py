"""The window that shows the agent, in a process of its own.

OpenCV's window hangs for ever in a process that has imported PyAV first (their wheels bring different
copies of the same X libraries), wants the main thread, and aborts the process when the desktop goes away.
As a child it can do all that without harm. Pictures go to its standard input as JPEG, each after its length
(u32); it ends with its input, so nothing is left behind when the parent dies. This module must not import
PyAV.
"""

import contextlib
import importlib
import importlib.util
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from client.errors import MediaDeviceError

ESCAPE = 27
SHOWN_PIXELS = 512
CLOSE_TIMEOUT_S = 2.0
_length = struct.Struct("<I")


class Window:
    """The parent's end. `show` never blocks: while the window is busy, pictures are left out.

    Raises:
        MediaDeviceError: when OpenCV or a desktop is missing.
    """

    def __init__(self, title: str, *, width: int, height: int) -> None:
        if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise MediaDeviceError("there is no desktop here")
        if importlib.util.find_spec("cv2") is None:
            raise MediaDeviceError("a window needs OpenCV: pip install 'thinker-performer[client]'")
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(  # noqa: S603 - this very module
            [sys.executable, "-m", "client.window", title, str(width), str(height)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Qt talks a lot
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._unsent = b""

    @property
    def closed(self) -> bool:
        """Whether the person at the desktop closed it."""
        return self._process.poll() == 0

    @property
    def failed(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() not in {None, 0}

    def show(self, coded: bytes) -> None:
        """Paint this JPEG."""
        unsent = self._unsent or _length.pack(len(coded)) + coded
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # it has ended; it is busy
            sent = os.write(self._pipe, unsent)
            self._unsent = unsent[sent:]

    def close(self) -> None:
        """Take it away."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Latest:
    """Reads pictures on a thread of its own; only the latest is kept."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._coded: bytes | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> bytes | None:
        coded, self._coded = self._coded, None
        return coded

    def _read(self) -> None:
        while len(head := self._stream.read(_length.size)) == _length.size:
            self._coded = self._stream.read(*_length.unpack(head))
        self.ended.set()


def main(title: str, width: int, height: int) -> int:
    """Show what comes on standard input until it ends or the window is closed; q and Esc close it too."""
    cv2 = importlib.import_module("cv2")
    numpy = importlib.import_module("numpy")
    pictures = _Latest(sys.stdin.buffer)
    scale = max(1, SHOWN_PIXELS // max(width, height))
    cv2.namedWindow(title, cv2.WINDOW_NORMAL | cv2.WINDOW_KEEPRATIO | cv2.WINDOW_GUI_NORMAL)
    cv2.resizeWindow(title, width * scale, height * scale)
    cv2.imshow(title, numpy.zeros((height, width, 3), numpy.uint8))
    while not pictures.ended.is_set():
        coded = pictures.take()
        picture = cv2.imdecode(numpy.frombuffer(coded, numpy.uint8), cv2.IMREAD_COLOR) if coded else None
        if picture is not None:  # enlarged here: the window itself would show blocks
            cv2.imshow(title, cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC))
        key = cv2.waitKey(10)
        if key in {ord("q"), ESCAPE} or cv2.getWindowProperty(title, cv2.WND_PROP_VISIBLE) < 1:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

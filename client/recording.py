"""A recorder with a thread of its own, so that encoding never holds up the event loop."""

import logging
import queue
import threading

import numpy as np

from client.errors import RecordError
from client.media import UserPart
from client.pictures import Picture, decode_jpeg
from client.recorder import Recorder
from protocol.media import MediaUnit

log = logging.getLogger(__name__)

MAX_WAITING = 64  # units on their way to the encoder, 5 s of both sides


class RecordingThread:
    """Takes what is to be recorded, in order.

    When the machine can't keep up, units are lost to the recording (as gaps), not to the session.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._queue: queue.Queue[MediaUnit | UserPart | None] = queue.Queue(MAX_WAITING)
        self._error: RecordError | None = None
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def begin(self, delay_s: float) -> None:
        """The agent's first unit, which is put next, is heard so long after the user's began."""
        self._recorder.delay_s = delay_s

    def put(self, what: MediaUnit | UserPart) -> None:
        """Record a unit of the agent, or note one of the user."""
        try:
            self._queue.put_nowait(what)
        except queue.Full:
            self._lost += 1
            if self._lost == 1:
                log.warning("the recording can't keep up: units are missing in it")

    def finish(self) -> bool:
        """Write what waits and complete the file; False when there is none because no unit came. Blocks.

        Raises:
            RecordError: when the file can't be written, now or at any time before.
        """
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._recorder.close()

    def _work(self) -> None:
        while (what := self._queue.get()) is not None:
            if self._error is not None:
                continue
            try:
                if isinstance(what, UserPart):
                    self._recorder.add_user(what)
                else:
                    pcm = np.frombuffer(what.audio, "<i2")
                    self._recorder.add(what.unit, pcm, _pictures(what))
            except RecordError as error:
                log.error("%s", error)
                self._error = error


def _pictures(unit: MediaUnit) -> list[Picture]:
    pictures = []
    for coded in unit.frames:
        try:
            pictures.append(decode_jpeg(coded))
        except ValueError:
            log.warning("unit %d: a picture that is no JPEG", unit.unit)
    return pictures

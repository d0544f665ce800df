"""Where the agent is heard and seen: loudspeaker, window, transcript, all at the pace of the sound.

Without a loudspeaker the samples are pulled by the clock: the same buffer, the same measurements, no device.
"""

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from client.devices import Loudspeaker
from client.errors import MediaDeviceError
from client.options import ClientSummary
from client.playout import Playout
from client.transcript import Transcript
from client.window import Window
from protocol import messages as m
from protocol.media import MediaUnit

log = logging.getLogger(__name__)

TICK_S = 0.02
MAX_LAG_TICKS = 50  # a second; after a longer stall the clock starts anew


class Player:
    """Plays and shows what the agent sends. `push`, `flush` and `play` belong to one event loop.

    Args:
        ready: what the agent sends.
        speaker: name or number of a loudspeaker, None for none.
        window: whether to open one.
        on_heard: called with the agent's text as it is heard.
    """

    def __init__(
        self, ready: m.Ready, *, speaker: str | None, window: bool, on_heard: Callable[[str], None]
    ) -> None:
        unit_us = ready.unit_ms * 1000
        self._rate = ready.sample_rate
        self._on_heard = on_heard
        self._playout = Playout(sample_rate=ready.sample_rate, unit_us=unit_us)
        self._transcript = Transcript(unit_us=unit_us)
        self._speaker = self._open_speaker(speaker) if speaker is not None else None
        self._window = _open_window(ready) if window else None

    def push(self, unit: MediaUnit) -> m.Ack:
        """A unit arrived; returns what to tell the server."""
        self._playout.push(unit.pts_us, np.frombuffer(unit.audio, "<i2"), unit.frames)
        return m.Ack(
            unit=unit.unit,
            played_pts=max(0, self._playout.heard_us or 0),
            underruns=self._playout.underruns,
        )

    def say(self, text: str, unit: int) -> None:
        """The agent says `text` in `unit`."""
        self._transcript.add(text, unit)

    def flush(self) -> None:
        """The agent was interrupted: nothing that waits will be heard."""
        self._playout.flush()
        self._transcript.cut()

    @property
    def head_start_s(self) -> float:
        """From the arrival of the first unit until it is heard."""
        return self._playout.head_start_s

    @property
    def empty(self) -> bool:
        """Whether everything that came was played."""
        return self._playout.buffered_ms == 0

    async def play(self) -> None:
        """Keep sound, picture and transcript going until the window is closed."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        ticks = pulled = 0
        while True:
            ticks += 1
            await asyncio.sleep(start + ticks * TICK_S - loop.time())
            late = (loop.time() - start) / TICK_S - ticks
            if late > MAX_LAG_TICKS:
                start += late * TICK_S
            self._check_speaker()
            due = round(ticks * TICK_S * self._rate)
            if self._speaker is None:
                self._playout.pull(due - pulled)
            pulled = due
            if not self._show():
                return

    def fill(self, summary: ClientSummary) -> None:
        """Write down what was heard and seen."""
        summary.skipped = self._playout.skipped_units
        summary.underruns = self._playout.underruns
        summary.av_skew_ms = self._playout.skew_ms()
        summary.said, summary.heard = self._transcript.said, self._transcript.heard

    def close(self) -> None:
        """Let go of loudspeaker and window."""
        for device in (self._speaker, self._window):
            if device is not None:
                device.close()

    def _show(self) -> bool:
        heard = self._playout.heard_us
        if heard is not None and (text := self._transcript.advance(heard)):
            self._on_heard(text)
        frame = self._playout.due_frame()
        if self._window is None:
            return True
        if frame is not None:
            self._window.show(frame.coded)
        if self._window.failed:
            log.warning("the window is gone: going on without")
            self._window = None
        return self._window is None or not self._window.closed

    def _check_speaker(self) -> None:
        if self._speaker is not None and not self._speaker.alive:
            log.warning("loudspeaker %s is gone: going on without sound", self._speaker.name)
            self._speaker.close()
            self._speaker = None
            self._playout.latency_us = 0

    def _open_speaker(self, name: str) -> Loudspeaker | None:
        try:
            speaker = Loudspeaker(self._playout, rate=self._rate, name=name)
        except MediaDeviceError as error:
            log.warning("going on without sound: %s", error)
            return None
        log.info("loudspeaker: %s", speaker.name)
        return speaker


def _open_window(ready: m.Ready) -> Window | None:
    try:
        return Window("thinker-performer", width=ready.width, height=ready.height)
    except MediaDeviceError as error:
        log.warning("going on without a window: %s", error)
        return None

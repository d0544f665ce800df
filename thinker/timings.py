"""What the Thinker measures of every unit, in fixed memory, and the report made of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from shared.reporting import Stages
from shared.slices import SliceHeader

STAGES = ("encode", "state", "send", "append", "solve", "return", "decode", "remember")
LOOP = ("remember", "state", "send", "append", "solve", "return")
EXCHANGE = ("send", "append", "solve", "return")
WHOLE = ("model_side", "unit_interval", "solve_plus_exchange", "loop")


class Timings:
    """Durations of stages and of what they add up to. The model thread writes, any thread reads."""

    def __init__(self, *, one_host: bool) -> None:
        self.one_host = one_host
        self.stages = Stages()
        self._unit: dict[str, float] = {}
        self._last_emitted: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of the Thinker's own."""
        began = time.monotonic()
        yield
        self._record(name, time.monotonic() - began)

    def packed(self, seconds: float) -> None:
        """A slice was packed and sent: the Thinker's work, though its time counts as `send`."""
        self.stages.record("pack", seconds)

    def exchanged(self, header: SliceHeader, sent_ns: int, returned_ns: int) -> None:
        """Take the Performer's times from returned latents; the slice was ready to be sent at `sent_ns`.

        On one host both clocks are the same. Between two hosts only the sum of both ways is known: it is
        counted half and half.
        """
        append, solve = header.append_ns / 1e9, header.solve_ns / 1e9
        send = (header.received_at_ns - sent_ns) / 1e9
        back = (returned_ns - header.sent_at_ns) / 1e9
        if not self.one_host:
            send = back = max(0.0, send + back) / 2
        for name, seconds in (("send", send), ("append", append), ("solve", solve), ("return", back)):
            self._record(name, max(0.0, seconds))
        parts = self._unit
        self.stages.record("solve_plus_exchange", sum(parts[name] for name in EXCHANGE))
        self.stages.record("loop", sum(parts.get(name, 0.0) for name in LOOP))

    def emitted(self, model_side_s: float) -> None:
        """A unit was decoded, `model_side_s` after its user unit was complete."""
        now = time.monotonic()
        self.stages.record("model_side", max(0.0, model_side_s))
        if self._last_emitted is not None:
            self.stages.record("unit_interval", now - self._last_emitted)
        self._last_emitted = now

    def paused(self) -> None:
        """The next unit does not follow the last one: a session ended in between."""
        self._last_emitted = None

    def busy_ms(self) -> dict[str, float]:
        """Mean time a unit that each process works; a unit has two slices to pack."""
        mean = self.stages.mean_ms
        thinker = sum(map(mean, ("encode", "state", "decode", "remember"))) + 2 * mean("pack")
        return {"thinker": thinker, "performer": mean("append") + mean("solve")}

    def summary(self) -> dict[str, object]:
        """The measured fields of the report."""
        seen = self.stages.summary_ms()
        nothing = {"p50": 0.0, "p99": 0.0}
        rounded = {name: {k: round(v, 3) for k, v in row.items()} for name, row in seen.items()}
        whole: dict[str, object] = {f"{name}_ms": rounded.get(name, nothing) for name in WHOLE}
        return whole | {"stages_ms": {name: rounded.get(name, nothing) for name in STAGES}}

    def _record(self, name: str, seconds: float) -> None:
        self._unit[name] = seconds
        self.stages.record(name, seconds)

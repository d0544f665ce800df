"""What the Thinker measures of every unit, in fixed memory, and the report made of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shared.reporting import Stages
from shared.slices import Flags, SliceHeader
from thinker.engine.running_session import RunningSession

STAGES = ("encode", "state", "send", "append", "solve", "return", "decode", "remember")
LOOP = ("remember", "state", "send", "append", "solve", "return")
EXCHANGE = ("send", "append", "solve", "return")
WHOLE = ("model_side", "unit_interval", "solve_plus_exchange", "loop")


class Timings:
    """Durations of stages and of what they add up to. The model thread writes, any thread reads.

    A stage that a batch of sessions goes through is one duration, whatever their number.
    """

    def __init__(self, *, one_host: bool) -> None:
        self.one_host = one_host
        self.stages = Stages()
        self.thinker_busy_s = 0.0
        """Seconds that the model thread has worked."""
        self.performer_busy_s = 0.0
        """Seconds that the Performer has worked, as far as it has told."""

    @contextmanager
    def stage(self, name: str, seats: Sequence[RunningSession]) -> Iterator[None]:
        """Measure a stage of the Thinker's own, which these seats go through together."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self.stages.record(name, seconds)
        self.thinker_busy_s += seconds
        for seat in seats:
            seat.parts[name] = seconds

    def packed(self, seconds: float) -> None:
        """Slices were packed and sent: the Thinker's work, though its time counts as `send`."""
        self.stages.record("pack", seconds)
        self.thinker_busy_s += seconds

    def exchanged(
        self, headers: Sequence[SliceHeader], seats: Sequence[RunningSession], returned_ns: int
    ) -> None:
        """Take the Performer's times from a batch of returned latents.

        On one host both clocks are the same. Between two hosts only the sum of both ways is known: it is
        counted half and half.
        """
        header = headers[-1]
        append, solve = header.append_ns / 1e9, header.solve_ns / 1e9
        send = (header.received_at_ns - seats[-1].sent_ns) / 1e9
        back = (returned_ns - header.sent_at_ns) / 1e9
        if not self.one_host:
            send = back = max(0.0, send + back) / 2
        parts = {"send": max(0.0, send), "append": append, "solve": solve, "return": max(0.0, back)}
        for name, seconds in parts.items():
            self.stages.record(name, seconds)
        self.performer_busy_s += append + solve
        self.stages.record("solve_plus_exchange", sum(parts.values()))
        for seat in seats:
            seat.parts |= parts
            self.stages.record("loop", sum(seat.parts.get(name, 0.0) for name in LOOP))

    def remembered(self, header: SliceHeader, seat: RunningSession, seconds: float) -> None:
        """The Performer's own pass over clean latents is here, and was appended within `seconds`.

        For the loop it is over at this moment, whatever part of it was exchange.
        """
        took = (time.monotonic_ns() - seat.returned_ns) / 1e9
        self.stages.record("remember", took)
        seat.parts["remember"] = took
        self.thinker_busy_s += seconds
        if not header.flags & Flags.MORE:  # once a batch
            self.performer_busy_s += header.solve_ns / 1e9

    def emitted(self, seat: RunningSession, complete_at: float) -> None:
        """A unit was decoded, whose user unit was complete at this moment of the monotonic clock."""
        now = time.monotonic()
        self.stages.record("model_side", max(0.0, now - complete_at))
        if seat.last_emitted is not None:
            self.stages.record("unit_interval", now - seat.last_emitted)
        seat.last_emitted = now

    def busy_ms(self) -> dict[str, float]:
        """Mean time a unit that each process works; a unit has two slices to pack. For one session."""
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

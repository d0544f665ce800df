"""What the Thinker measures of every unit, in fixed memory.

Stage names are those of the report: `append` is the Performer's `import_kv`, `remember` our `commit`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shared.clock import Clock
from shared.reporting import Stages
from shared.slices import SliceHeader
from thinker.engine.running_session import RunningSession
from thinker.report import Percentiles

STAGES = ("encode", "state", "send", "append", "solve", "return", "decode", "remember")
LOOP = ("remember", "state", "send", "append", "solve", "return")
PACK = "pack"  # export and sending of slices: the Thinker's work, though the report counts it as `send`


class Timings:
    """Durations of stages and of what they add up to. The model thread writes, any thread reads.

    All moments are of the sessions' clock; on `one_host` the Performer's stamps are too. A stage that a batch
    of sessions goes through is one duration, whatever their number.
    """

    def __init__(self, clock: Clock, *, one_host: bool) -> None:
        self.one_host = one_host
        self.stages = Stages()
        self.thinker_busy_s = 0.0
        """Seconds that the model thread has worked."""
        self.performer_busy_s = 0.0
        """Seconds that the Performer has worked, as far as it has told."""
        self._clock = clock

    @contextmanager
    def stage(self, name: str, sessions: Sequence[RunningSession]) -> Iterator[None]:
        """Measure a stage of the Thinker's own, which these sessions go through together."""
        began = self._clock.now()
        yield
        seconds = self._clock.now() - began
        self.stages.record(name, seconds)
        self.thinker_busy_s += seconds
        for session in sessions:
            session.stage_s[name] = seconds

    def returned(self, headers: Sequence[SliceHeader], sessions: Sequence[RunningSession]) -> None:
        """Take the Performer's times from a batch of latents that has just come.

        On one host both clocks are the same. Between two hosts only the sum of both ways is known: it is
        counted half and half.
        """
        header, sent_at, now = headers[-1], sessions[-1].sent_at, self._clock.now()
        append, solve = header.append_ns / 1e9, header.solve_ns / 1e9
        send = back = (now - sent_at - (header.sent_at_ns - header.received_at_ns) / 1e9) / 2
        if self.one_host:
            send, back = header.received_at_ns / 1e9 - sent_at, now - header.sent_at_ns / 1e9
        exchange = {"send": max(0.0, send), "append": append, "solve": solve, "return": max(0.0, back)}
        for name, seconds in exchange.items():
            self.stages.record(name, seconds)
        self.performer_busy_s += append + solve
        self.stages.record("solve_plus_exchange", sum(exchange.values()))
        for session in sessions:
            session.stage_s |= exchange
            self.stages.record("loop", sum(session.stage_s.get(name, 0.0) for name in LOOP))

    def emitted(self, session: RunningSession, complete_at: float) -> None:
        """A unit was decoded, whose user unit was complete at this moment."""
        now = self._clock.now()
        self.stages.record("model_side", max(0.0, now - complete_at))
        if session.last_emitted is not None:
            self.stages.record("unit_interval", now - session.last_emitted)
        session.last_emitted = now

    def busy_ms(self) -> dict[str, float]:
        """Mean time a unit that each process works; a unit has two slices to pack. For one session."""
        mean = self.stages.mean_ms
        thinker = sum(map(mean, ("encode", "state", "decode", "remember"))) + 2 * mean(PACK)
        return {"thinker": thinker, "performer": mean("append") + mean("solve")}

    def percentiles(self, name: str) -> Percentiles:
        """p50 and p99 of a stage, or of a sum such as "loop"."""
        p50, p99 = (round(self.stages.percentile_ms(name, percent), 3) for percent in (50, 99))
        return Percentiles(p50=p50, p99=p99)

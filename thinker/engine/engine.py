"""The engine: the model thread, the links to other processes, and the sessions that they serve."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import msgspec

from shared.clock import Clock, MonotonicClock, UnitClock
from shared.devices import claim_core
from shared.errors import LinkClosed, RuntimeFault
from shared.links.base import LinkEnd
from shared.links.choose import ONE_HOST_LINKS
from shared.links.waiting import AnyOf, WakeEvent
from shared.memory import rss_mb
from shared.models.family import Family
from shared.models.layout import KVBlock
from thinker.engine.admission import Admission, LoadMonitor, WaitEstimator
from thinker.engine.pipeline import Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import STAGES, Timings
from thinker.engine.warmup import warm_up
from thinker.report import ProcessMemory, Report, SessionCounts, UnitCounts
from thinker.units import AgentUnit, MediaSpec, UserSource

log = logging.getLogger(__name__)

MAX_LATE_SHARE = 0.01  # of the units, with which real time is still held

Links = Mapping[str, LinkEnd]
"""By the role of the process at the other end."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How sessions are run."""

    model: str
    seed: int = 0
    pin: str = "auto"
    pipeline: PipelineOptions = dataclasses.field(default_factory=PipelineOptions)


class ThinkerEngine:
    """Keeps to `thinker.units.Engine`. `run` is the model thread; the rest is called from the event loop.

    `join` finds the other processes, for as long as it takes; None when told to stop before all are there.
    """

    def __init__(
        self,
        family: Family,
        join: Callable[[], Links | None],
        options: EngineOptions,
        clock: Clock | None = None,
    ) -> None:
        self.spec = MediaSpec(model=options.model, **dataclasses.asdict(family.media))
        self._clock = clock or MonotonicClock()
        self.timings = Timings(self._clock, one_host=True)
        self.counts = UnitCounts()
        self._family = family
        self._join = join
        self._link_kind: str | None = None
        self._options = options
        self._lock = threading.Lock()
        self._wake = WakeEvent()
        self._sessions: dict[int, RunningSession] = {}  # that shall run; the model thread follows
        self._num_opened = 0
        self._admission: Admission | None = None
        self._load: LoadMonitor | None = None
        self._waits = WaitEstimator()
        self._stopping = False
        self.fault: str | None = None

    @property
    def ready(self) -> bool:
        return self._admission is not None and self.fault is None

    def open_session(
        self, *, inbox: UserSource, on_unit: Callable[[AgentUnit], None], on_end: Callable[[str], None]
    ) -> RunningSession | None:
        with self._lock:
            if not self.ready or self._admission is None or self._load is None:
                return None
            if not self._admission.fits(len(self._sessions), self._load.slower):
                return None
            self._num_opened += 1
            session = RunningSession(
                number=self._num_opened, seed=self._options.seed, source=inbox, on_unit=on_unit,
                on_end=on_end, clock=UnitClock(self.spec.unit_ms / 1000, self._clock),
            )  # fmt: skip
            self._sessions[session.number] = session
        self._wake.set()
        return session

    def close_session(self, handle: object) -> None:
        with self._lock:
            if isinstance(handle, RunningSession) and self._sessions.pop(handle.number, None) is not None:
                self._waits.add(self._clock.now() - handle.opened_at)
        self._wake.set()

    def wait_s(self, position: int) -> float | None:
        with self._lock:
            now = self._clock.now()
            return self._waits.wait_s(position, [now - each.opened_at for each in self._sessions.values()])

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """The model thread: join the other processes, then serve until `stop` or the end of one of them."""
        try:
            with claim_core("thinker", self._options.pin):
                self._run()
        except LinkClosed:
            if self._stopping:
                return
            self._fail("the performer has gone away")
        except RuntimeFault as fault:
            self._fail(str(fault))
        except Exception:  # the end of this thread must not pass for a quiet one: clients wait for it
            log.exception("the model thread failed")
            self._fail("the model failed; the thinker's log says why")
        finally:
            self._admission = None

    def _run(self) -> None:
        links = self._join()
        if links is not None:
            with ExitStack() as stack:
                for link in links.values():
                    stack.enter_context(link)
                self._serve(links["performer"])

    def _serve(self, link: LinkEnd) -> None:
        self._link_kind = link.kind
        self.timings.one_host = link.kind in ONE_HOST_LINKS
        options, unit_ms = self._options.pipeline, self.spec.unit_ms
        pipeline = Pipeline(
            family=self._family, link=link, memory=self._family.allocate(options.slots), clock=self._clock,
            wakeup=AnyOf(link.receiver, self._wake), options=options, timings=self.timings,
            counts=self.counts,
        )  # fmt: skip
        costs = warm_up(pipeline, self.spec, stopping=lambda: self._stopping)
        if self._stopping:
            return
        admission = Admission(unit_ms=unit_ms, slots=options.slots, costs=costs)
        self._load = load = LoadMonitor(
            timings=self.timings, busy_ms=admission.busy_ms, unit_ms=unit_ms, now=self._clock.now
        )
        self._admission = admission
        log.info("ready for %d sessions", admission.most)
        while not self._stopping:
            self._wake.clear()
            self._open_and_close(pipeline)
            load.sample(len(pipeline.sessions))
            pipeline.step()

    def _open_and_close(self, pipeline: Pipeline) -> None:
        """Do what the event loop has asked for."""
        with self._lock:
            wanted = list(self._sessions.values())
        for session in [each for each in pipeline.sessions if each not in wanted]:
            pipeline.close(session)
        for session in wanted:
            if session not in pipeline.sessions:
                pipeline.open(session)

    def _fail(self, reason: str) -> None:
        log.error("%s", reason)
        self.fault = reason
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.on_end(reason)

    def report(self) -> Report:
        measured = self.timings.percentiles
        admission, load = self._admission, self._load
        return Report(
            units=msgspec.structs.replace(self.counts),
            model_side_ms=measured("model_side"),
            unit_interval_ms=measured("unit_interval"),
            solve_plus_exchange_ms=measured("solve_plus_exchange"),
            loop_ms=measured("loop"),
            stages_ms={name: measured(name) for name in STAGES},
            deadline_ms=self.spec.unit_ms,
            realtime=self._realtime(),
            slice_bytes=max(map(self._family.slice_bytes, KVBlock)),
            link=self._link_kind,
            pacing=self._options.pipeline.pacing.value,
            sessions=SessionCounts(
                running=len(self._sessions), slots=self._options.pipeline.slots,
                fit=admission.most if admission else None, load=load.share if load else None,
                slower=load.slower if load else None,
            ),
            rss_mb=ProcessMemory(thinker=rss_mb()),
            restarts=0,
            model=self._options.model,
            seed=self._options.seed,
            at=time.time(),
        )  # fmt: skip

    def _realtime(self) -> bool:
        counts = self.counts
        return (
            counts.emitted > 0
            and self.timings.stages.percentile_ms("loop", 99) < self.spec.unit_ms
            and counts.late < MAX_LATE_SHARE * counts.emitted
            and not counts.dropped
        )

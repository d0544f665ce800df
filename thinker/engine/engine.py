"""The engine: the model thread, the link to the Performer, and the sessions that they serve."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from shared.clock import MonotonicClock
from shared.devices import claim_core
from shared.errors import LinkClosed, RuntimeFault
from shared.links.base import LinkEnd
from shared.links.waiting import AnyOf, Doorbell
from shared.memory import rss_mb
from shared.models.family import Family
from shared.models.layout import KVBlock
from thinker.engine.admission import Admission
from thinker.engine.load_monitor import LoadMonitor
from thinker.engine.pipeline import Counts, Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import Timings
from thinker.engine.wait_estimator import WaitEstimator
from thinker.engine.warmup import warm_up
from thinker.report import Report
from thinker.units import AgentUnit, MediaSpec, UserSource

log = logging.getLogger(__name__)

MAX_TEXT = 20_000  # characters of what the agent said that the report keeps
MAX_HEARD = 1_000  # of what it understood
ONE_HOST_LINKS = ("shm", "loopback")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How sessions are run."""

    model: str
    seed: int = 0
    pin: str = "auto"
    pipeline: PipelineOptions = dataclasses.field(default_factory=PipelineOptions)


@dataclass(kw_only=True, slots=True, eq=False)
class _Session:
    session: int
    source: UserSource
    on_unit: Callable[[AgentUnit], None]
    on_end: Callable[[str], None]


class ThinkerEngine:
    """Keeps to `thinker.units.Engine`. `run` is the model thread; the rest is called from the event loop.

    Args:
        family: the model.
        join: finds the Performer, for as long as it takes; None when told to stop before there was one.
        options: see there.
    """

    def __init__(
        self, family: Family[Any, Any], join: Callable[[], LinkEnd | None], options: EngineOptions
    ) -> None:
        self.spec = MediaSpec(model=options.model, **dataclasses.asdict(family.media))
        self.timings = Timings(one_host=True)
        self.counts = Counts()
        self._family = family
        self._join = join
        self._link_kind: str | None = None
        self._options = options
        self._lock = threading.Lock()
        self._doorbell = Doorbell()
        self._asked: dict[int, _Session] = {}  # sessions that shall run; the model thread follows
        self._seats: dict[int, RunningSession] = {}  # those that do
        self._admission: Admission | None = None
        self._load: LoadMonitor | None = None
        self._num_sessions = 0
        self._stays = WaitEstimator()
        self._said: deque[str] = deque()
        self._said_length = 0
        self._heard: deque[dict[str, object]] = deque(maxlen=MAX_HEARD)
        self._stopping = False
        self._fault: str | None = None

    @property
    def ready(self) -> bool:
        """Warm, and the Performer answers."""
        return self._admission is not None and self._fault is None

    @property
    def fault(self) -> str | None:
        """Why no session will ever run again."""
        return self._fault

    def open_session(
        self, *, inbox: UserSource, on_unit: Callable[[AgentUnit], None], on_end: Callable[[str], None]
    ) -> _Session | None:
        """Take a slot, if one is free and another session can be held in real time."""
        with self._lock:
            if not self.ready or self._admission is None or self._load is None:
                return None
            if not self._admission.fits(len(self._asked), self._load.slower):
                return None
            self._num_sessions += 1
            asked = _Session(session=self._num_sessions, source=inbox, on_unit=on_unit, on_end=on_end)
            self._asked[asked.session] = asked
            self._stays.begin(asked.session)
        self._doorbell.ring()
        return asked

    def close_session(self, handle: object) -> None:
        """Free the slot if the session still holds it."""
        with self._lock:
            if isinstance(handle, _Session) and self._asked.pop(handle.session, None) is not None:
                self._stays.end(handle.session)
        self._doorbell.ring()

    def wait_s(self, position: int) -> float | None:
        """How long the `position`th of those that wait may have to, if sessions last as lately."""
        with self._lock:
            return self._stays.wait_s(position)

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping = True
        self._doorbell.ring()

    def run(self) -> None:
        """The model thread: join the Performer, then serve until `stop` or until the Performer is gone."""
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
        link = self._join()
        if link is not None:
            with link:
                self._serve(link)

    def _serve(self, link: LinkEnd) -> None:
        self._link_kind = link.kind
        self.timings.one_host = link.kind in ONE_HOST_LINKS
        pipeline = Pipeline(
            family=self._family, link=link, memory=self._family.allocate(self._options.pipeline.slots),
            clock=MonotonicClock(), wakeup=AnyOf(link.receiver, self._doorbell),
            options=self._options.pipeline, timings=self.timings, counts=self.counts,
        )  # fmt: skip
        costs = warm_up(pipeline, self.spec, stopping=lambda: self._stopping)
        if self._stopping:
            return
        unit_ms, slots = self.spec.unit_ms, self._options.pipeline.slots
        admission = Admission(unit_ms=unit_ms, slots=slots, costs=costs)
        self._load = load = LoadMonitor(self.timings, busy_ms=admission.busy_ms, unit_ms=unit_ms)
        self._admission = admission
        log.info("ready for %d sessions", admission.most)
        while not self._stopping:
            self._doorbell.answer()
            self._follow(pipeline)
            load.look(len(self._seats))
            pipeline.step()

    def _follow(self, pipeline: Pipeline) -> None:
        """Close and open what the event loop has asked for."""
        with self._lock:
            asked = dict(self._asked)
        for number in self._seats.keys() - asked.keys():
            pipeline.close(self._seats.pop(number))
        for number in asked.keys() - self._seats.keys():
            session = asked[number]
            self._seats[number] = pipeline.open(
                session=number, seed=self._options.seed, source=session.source, on_unit=self._emitter(session)
            )

    def _emitter(self, session: _Session) -> Callable[[AgentUnit], None]:
        def emit(unit: AgentUnit) -> None:
            with self._lock:
                self._note(unit)
            session.on_unit(unit)

        return emit

    def _note(self, unit: AgentUnit) -> None:
        if unit.decision.heard:
            self._heard.append({"request": unit.decision.heard, "unit": unit.unit})
        if unit.decision.text:
            self._said.append(unit.decision.text)
            self._said_length += len(unit.decision.text)
            while self._said_length > MAX_TEXT:
                self._said_length -= len(self._said.popleft())

    def _fail(self, reason: str) -> None:
        log.error("%s", reason)
        self._fault = reason
        with self._lock:
            sessions, self._asked = list(self._asked.values()), {}
        for session in sessions:
            session.on_end(reason)

    def report(self) -> Report:
        """The fields of the report that the Thinker knows."""
        summary = self.timings.summary()
        counts = self.counts
        late_share = counts.late / max(1, counts.emitted)
        admission, load = self._admission, self._load
        with self._lock:
            text, heard, running = "".join(self._said).strip(), list(self._heard), len(self._asked)
        fields = {
            "units": {"emitted": counts.emitted, "late": counts.late, "dropped": counts.dropped},
            **summary,
            "deadline_ms": self.spec.unit_ms,
            "realtime": counts.emitted > 0
            and self.timings.stages.percentile_ms("loop", 99) < self.spec.unit_ms
            and late_share < 0.01
            and not counts.dropped,
            "slice_bytes": max(self._family.slice_bytes(block) for block in KVBlock),
            "link": self._link_kind,
            "pacing": self._options.pipeline.pacing.value,
            "sessions": {
                "running": running,
                "slots": self._options.pipeline.slots,
                "fit": None if admission is None else admission.most,
                "load": None if load is None else load.share,
                "slower": None if load is None else load.slower,
            },
            "rss_mb": {"thinker": rss_mb(), "performer": None},
            "restarts": 0,
            "text": text,
            "heard": heard,
            "model": self._options.model,
            "seed": self._options.seed,
            "at": time.time(),
        }
        return msgspec.convert(fields, Report)

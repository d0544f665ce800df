"""The engine: the model thread, the link to the Performer, and the one session that they serve at a time."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shared.clock import Clock, FlatOutClock, MonotonicClock, UnitClock, Wakeup
from shared.errors import LinkClosed, RuntimeFault
from shared.links.base import LinkEnd
from shared.links.waiting import AnyOf, Doorbell
from shared.memory import rss_mb
from shared.models.family import Family
from thinker.pipeline import Counts, Pacing, Pipeline
from thinker.timings import Timings
from thinker.units import AgentUnit, MediaSpec, UserSource, UserUnit

log = logging.getLogger(__name__)

WARM_UP_UNITS = 12
MAX_TEXT = 20_000  # characters of what the agent said that the report keeps
MAX_HEARD = 1_000  # of what it understood
ONE_HOST_LINKS = ("shm", "loopback")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How sessions are run."""

    model: str
    seed: int = 0
    pacing: Pacing = Pacing.EAGER
    checked: bool = False
    latents_within_s: float = 10.0


@dataclass(kw_only=True, slots=True)
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

    _link: LinkEnd  # both set by `run`, once there is a Performer
    _wakeup: Wakeup

    def __init__(
        self, family: Family[Any], join: Callable[[], LinkEnd | None], options: EngineOptions
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
        self._asked: _Session | None = None  # the session that shall run; the model thread follows
        self._running: _Session | None = None
        self._pipeline: Pipeline | None = None
        self._num_sessions = 0
        self._said: deque[str] = deque()
        self._said_length = 0
        self._heard: deque[dict[str, object]] = deque(maxlen=MAX_HEARD)
        self._stopping = False
        self._ready = False
        self._fault: str | None = None

    @property
    def ready(self) -> bool:
        """Warm, and the Performer answers."""
        return self._ready and self._fault is None

    @property
    def fault(self) -> str | None:
        """Why no session will ever run again."""
        return self._fault

    def open_session(
        self, *, inbox: UserSource, on_unit: Callable[[AgentUnit], None], on_end: Callable[[str], None]
    ) -> _Session | None:
        """Take the slot, if it is free and the engine is ready."""
        with self._lock:
            if self._asked is not None or not self.ready:
                return None
            self._num_sessions += 1
            self._asked = _Session(session=self._num_sessions, source=inbox, on_unit=on_unit, on_end=on_end)
            asked = self._asked
        self._doorbell.ring()
        return asked

    def close_session(self, handle: object) -> None:
        """Free the slot if the session still holds it."""
        with self._lock:
            if self._asked is handle:
                self._asked = None
        self._doorbell.ring()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping = True
        self._doorbell.ring()

    def run(self) -> None:
        """The model thread: join the Performer, then serve until `stop` or until the Performer is gone."""
        try:
            link = self._join()
            if link is not None:
                with link:
                    self._serve(link)
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
            self._ready = False

    def _serve(self, link: LinkEnd) -> None:
        self._link, self._link_kind = link, link.kind
        self._wakeup = AnyOf(link.receiver, self._doorbell)
        self.timings.one_host = link.kind in ONE_HOST_LINKS
        self._warm_up()
        self._ready = True
        log.info("ready")
        while not self._stopping:
            self._serve_once()

    def _serve_once(self) -> None:
        self._doorbell.answer()
        with self._lock:
            asked = self._asked
        if asked is not self._running:
            self._switch(asked)
        if self._pipeline is not None:
            self._pipeline.step()
        else:
            self._wakeup.wait(None)
            self._drain()

    def _switch(self, asked: _Session | None) -> None:
        if self._pipeline is not None:
            self._pipeline.finish()
            self.timings.paused()
        self._running, self._pipeline = asked, None
        if asked is not None:
            self._pipeline = self._new_pipeline(
                asked, MonotonicClock(), lambda unit: self._emit(asked, unit), self.timings, self.counts
            )
            self._pipeline.start()

    def _new_pipeline(
        self,
        session: _Session,
        clock: Clock,
        on_unit: Callable[[AgentUnit], None],
        timings: Timings,
        counts: Counts,
    ) -> Pipeline:
        return Pipeline(
            family=self._family, link=self._link, clock=UnitClock(self.spec.unit_ms / 1000, clock),
            wakeup=self._wakeup, source=session.source, on_unit=on_unit,
            session=session.session, seed=self._options.seed, pacing=self._options.pacing, timings=timings,
            counts=counts, flat_out=isinstance(clock, FlatOutClock), checked=self._options.checked,
            latents_within_s=self._options.latents_within_s,
        )  # fmt: skip

    def _emit(self, session: _Session, unit: AgentUnit) -> None:
        if unit.heard:
            with self._lock:
                self._heard.append({"request": unit.heard, "unit": unit.unit})
        if unit.text:
            with self._lock:
                self._said.append(unit.text)
                self._said_length += len(unit.text)
                while self._said_length > MAX_TEXT:
                    self._said_length -= len(self._said.popleft())
        session.on_unit(unit)

    def _drain(self) -> None:
        """Without a session nothing should come but the end of the link, which this raises."""
        while self._link.receiver.poll() is not None:
            self._link.receiver.release()

    def _warm_up(self) -> None:
        """Run a few units of silence, so that the first one of a session costs what the others do."""
        nothing = _Session(
            session=0, source=_Silence(self.spec), on_unit=lambda _: None, on_end=lambda _: None
        )
        timings, counts = Timings(one_host=self.timings.one_host), Counts()
        pipeline = self._new_pipeline(nothing, FlatOutClock(), nothing.on_unit, timings, counts)
        pipeline.start()
        while counts.emitted < WARM_UP_UNITS and not self._stopping:
            pipeline.step()
        pipeline.finish()

    def _fail(self, reason: str) -> None:
        log.error("%s", reason)
        self._fault = reason
        with self._lock:
            session, self._asked = self._running or self._asked, None
        if session is not None:
            session.on_end(reason)

    def report(self) -> dict[str, object]:
        """The fields of the report that the Thinker knows."""
        summary = self.timings.summary()
        counts = self.counts
        late_share = counts.late / max(1, counts.emitted)
        with self._lock:
            text, heard = "".join(self._said).strip(), list(self._heard)
        return {
            "units": {"emitted": counts.emitted, "late": counts.late, "dropped": counts.dropped},
            **summary,
            "deadline_ms": self.spec.unit_ms,
            "realtime": counts.emitted > 0
            and self.timings.stages.percentile_ms("loop", 99) < self.spec.unit_ms
            and late_share < 0.01
            and not counts.dropped,
            "slice_bytes": self._family.slice_bytes,
            "link": self._link_kind,
            "pacing": self._options.pacing.value,
            "rss_mb": {"thinker": rss_mb(), "performer": None},
            "restarts": 0,
            "text": text,
            "heard": heard,
            "model": self._options.model,
            "seed": self._options.seed,
            "at": time.time(),
        }


class _Silence:
    """A user who isn't there, but has typed one word: so that what speech needs is loaded too."""

    def __init__(self, spec: MediaSpec) -> None:
        self._unit = UserUnit(
            pcm=np.zeros(spec.input_unit_samples, np.float32),
            frames=np.zeros((spec.frames_per_unit, spec.input_height, spec.input_width, 3), np.uint8),
            texts=("Ready.",), interrupted=False, epoch=0,
        )  # fmt: skip

    def lacking(self) -> bool:
        """Silence is always there."""
        return False

    def take(self) -> UserUnit:
        """Silence and darkness."""
        unit, self._unit = self._unit, replace(self._unit, texts=())
        return unit

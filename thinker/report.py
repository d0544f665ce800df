"""The report: what the Thinker measured since it started. Figures and names alone, nothing that anyone said.

The field names are those of the JSON that `GET /report` answers.
"""

import msgspec


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of many durations, in milliseconds; 0 before the first."""

    p50: float = 0.0
    p99: float = 0.0


class UnitCounts(msgspec.Struct, kw_only=True):
    """Units of all sessions: `late` came after their deadline, `dropped` were given up."""

    emitted: int = 0
    late: int = 0
    dropped: int = 0


class SessionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions run, how many could, and how busy the pair is; None where that is not known."""

    running: int
    slots: int
    fit: int | None = None
    load: float | None = None
    slower: float | None = None


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory in MB; None where a process is not this one's to measure."""

    thinker: float | None = None
    performer: float | None = None


class EventLoopLag(msgspec.Struct, frozen=True, kw_only=True):
    """How late the server's event loop was, in milliseconds."""

    p99: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `Engine.report` returns. The server adds `event_loop_lag_ms`."""

    units: UnitCounts
    model_side_ms: Percentiles
    unit_interval_ms: Percentiles
    solve_plus_exchange_ms: Percentiles
    loop_ms: Percentiles
    stages_ms: dict[str, Percentiles]
    deadline_ms: int
    realtime: bool
    slice_bytes: int
    link: str | None
    pacing: str
    sessions: SessionCounts
    rss_mb: ProcessMemory
    restarts: int
    model: str
    seed: int
    at: float
    event_loop_lag_ms: EventLoopLag = EventLoopLag()

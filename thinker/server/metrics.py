"""The server's numbers: Prometheus text, and the short form that clients get once a second.

Whatever happens is counted where it happens, so that a scrape shows it while the session still runs.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protocol.messages import Metrics
from shared.reporting import Histogram
from thinker.report import Report

_PREFIX = "thinker_"
LAG_EVERY_S = 0.05


class ServerMetrics:
    """Counters and gauges of one server, in a registry of their own. Counters may be used by any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.connections = self._gauge("connections", "WebSocket connections that are open")
        self.sessions = self._gauge("sessions", "Sessions that hold a slot")
        self.waiting = self._gauge("sessions_waiting", "Sessions that wait for a slot")
        self.closes = Counter(
            _PREFIX + "closes", "Connections ended, by close code", ["code"], registry=self._registry
        )
        self.received_bytes = self._counter("received_bytes", "Bytes of messages from clients")
        self.sent_bytes = self._counter("sent_bytes", "Bytes of messages to clients")
        self.sent_units = self._counter("sent_units", "Units of the agent that were sent")
        self.lost_units = self._counter("lost_units", "Units of the agent that slow clients lost")
        self.lost_frames = self._counter("lost_frames", "Frames of the agent that slow clients lost")
        self.skipped_user_units = self._counter("skipped_user_units", "User units that came too fast")
        self.underruns = self._counter("underruns", "Acks of clients that told of new underruns")
        self.bad_pictures = self._counter("bad_pictures", "User pictures that could not be used")
        self.refused_texts = self._counter("refused_texts", "Lines of users that the agent will not answer")
        self.missing_samples = self._counter("missing_samples", "Samples of user sound filled with silence")
        self.dropped_samples = self._counter("dropped_samples", "Samples of user sound that came too fast")

    def add_report(self, report: Callable[[], msgspec.Struct]) -> None:
        """Show every number of the report too; `report` is called once per scrape."""
        self._registry.register(_ReportCollector(report))

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(_PREFIX + name, about, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(_PREFIX + name, about, registry=self._registry)


class ReportMetrics:
    """A registry that shows every number of a report; what else is in it is its owner's."""

    def __init__(self, registry: CollectorRegistry, report: Callable[[], msgspec.Struct]) -> None:
        self._registry = registry
        registry.register(_ReportCollector(report))

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _ReportCollector(Collector):
    """Every number of the report as a gauge: `loop_ms: {p99: 90}` is `thinker_report_loop_ms{of="p99"}`.

    A second level of nesting becomes a second label, `of` and `in`.
    """

    def __init__(self, report: Callable[[], msgspec.Struct]) -> None:
        self._report = report

    def describe(self) -> Iterable[Metric]:
        return []  # the names are known at scrape time alone

    def collect(self) -> Iterator[Metric]:
        for field, value in msgspec.to_builtins(self._report()).items():
            numbers = list(_numbers(value))
            if not numbers:
                continue
            labels = ["in", "of"][-max(len(path) for path, _ in numbers) :] if numbers[0][0] else []
            gauge = GaugeMetricFamily(f"{_PREFIX}report_{field}", f"{field} of the report", labels=labels)
            for path, number in numbers:
                gauge.add_metric(("",) * (len(labels) - len(path)) + path, number)
            yield gauge


def _numbers(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """(path, number) of every number within two levels."""
    if isinstance(value, int | float):
        yield path, float(value)
    elif isinstance(value, Mapping) and len(path) < 2:
        for key, inner in value.items():
            yield from _numbers(inner, (*path, str(key)))


def client_metrics(report: Report) -> Metrics:
    """The report in short."""
    return Metrics(
        stages_ms={stage: spread.p50 for stage, spread in report.stages_ms.items()},
        model_side_ms=report.model_side_ms.p50,
        loop_ms=report.loop_ms.p50,
        late=report.units.late,
        emitted=report.units.emitted,
        dropped=report.units.dropped,
    )


class LoopLag:
    """How late the event loop is: between when a task should have woken and when it did."""

    def __init__(self) -> None:
        self._lags = Histogram()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.record(loop.time() - due)

    def record(self, lag_s: float) -> None:
        """Add one sample in seconds; negative ones (a clock that rounds down) count as none."""
        self._lags.record(max(0.0, lag_s))

    def p99_ms(self) -> float:
        """The 99th percentile since the start in milliseconds, 0 before the first sample."""
        return 1e3 * self._lags.percentile(99)

"""The server's numbers: Prometheus text, and the short form that clients get once a second.

The engine's report is the one source of its figures; here they are only put into other shapes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protocol.messages import Metrics

_PREFIX = "thinker_"


class ServerMetrics:
    """Counters of the server, and a view on the report, in a registry of their own.

    Args:
        report: gives the report's current fields; called once per scrape.
    """

    def __init__(self, report: Callable[[], Mapping[str, object]]) -> None:
        self._registry = CollectorRegistry()
        self.connections = self._gauge("connections", "WebSocket connections that are open")
        self.sessions = self._gauge("sessions", "Sessions that hold a slot")
        self.waiting = self._gauge("sessions_waiting", "Sessions that wait for a slot")
        self.closes = Counter(
            _PREFIX + "closes", "Connections ended, by close code", ["code"], registry=self._registry
        )
        self.received_bytes = self._counter("received_bytes", "Bytes of messages from clients")
        self.sent_bytes = self._counter("sent_bytes", "Bytes of messages to clients")
        self.sent_units = self._counter("sent_units", "Units of the agent put on the wire")
        self.lost_units = self._counter("lost_units", "Units of the agent that slow clients lost")
        self.lost_frames = self._counter("lost_frames", "Frames of the agent that slow clients lost")
        self.skipped_user_units = self._counter("skipped_user_units", "User units that came too fast")
        self.bad_pictures = self._counter("bad_pictures", "User pictures that could not be used")
        self.refused_texts = self._counter("refused_texts", "Lines of users that the agent will not answer")
        self.missing_samples = self._counter("missing_samples", "Samples of user sound filled with silence")
        self.dropped_samples = self._counter("dropped_samples", "Samples of user sound that came too fast")
        self._registry.register(_ReportCollector(report))

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(_PREFIX + name, about, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(_PREFIX + name, about, registry=self._registry)


class _ReportCollector(Collector):
    """Every number of the report as a gauge: `loop_ms: {p99: 90}` is `thinker_report_loop_ms{of="p99"}`.

    A second level of nesting becomes a second label, `of` and `in`.
    """

    def __init__(self, report: Callable[[], Mapping[str, object]]) -> None:
        self._report = report

    def describe(self) -> Iterable[Metric]:
        return []  # the names are known at scrape time alone

    def collect(self) -> Iterator[Metric]:
        for field, value in self._report().items():
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


class _Spread(msgspec.Struct):
    p50: float | None = None


class _Units(msgspec.Struct):
    emitted: int = 0
    late: int = 0
    dropped: int = 0


class _ReportView(msgspec.Struct):
    """The fields of the report that a client gets."""

    units: _Units = msgspec.field(default_factory=_Units)
    model_side_ms: _Spread = msgspec.field(default_factory=_Spread)
    loop_ms: _Spread = msgspec.field(default_factory=_Spread)
    stages_ms: dict[str, _Spread] = {}


def client_metrics(report: Mapping[str, object]) -> Metrics:
    """The report in short; what has not been measured yet is 0.

    Raises:
        msgspec.ValidationError: a field of the report is not what the design says.
    """
    view = msgspec.convert(report, _ReportView)
    return Metrics(
        stages_ms={stage: spread.p50 or 0.0 for stage, spread in view.stages_ms.items()},
        model_side_ms=view.model_side_ms.p50 or 0.0,
        loop_ms=view.loop_ms.p50 or 0.0,
        late=view.units.late,
        emitted=view.units.emitted,
        dropped=view.units.dropped,
    )

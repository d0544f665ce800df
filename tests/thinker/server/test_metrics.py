"""The report in Prometheus' words and in the client's; the event loop's lag."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from thinker.report import Percentiles, Report, SessionCounts, UnitCounts
from thinker.server.metrics import LoopLag, ServerMetrics, client_metrics


@pytest.fixture
def report(engine: Any) -> Report:
    return msgspec.structs.replace(
        engine.report(),
        units=UnitCounts(emitted=5, late=1, dropped=0),
        stages_ms={"encode": Percentiles(p50=3.5), "solve": Percentiles(p50=60.0, p99=70.0)},
        sessions=SessionCounts(running=2, slots=4, fit=3, load=0.4),
    )


def samples(metrics: ServerMetrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_number_of_the_report_is_a_gauge(report: Report) -> None:
    metrics = ServerMetrics()
    metrics.add_report(lambda: report)
    found = samples(metrics)
    assert found["thinker_report_units", "late"] == 1
    assert found["thinker_report_stages_ms", "solve", "p99"] == 70
    assert found["thinker_report_model_side_ms", "p50"] == 90.5
    assert found["thinker_report_slice_bytes",] == 4096
    assert found["thinker_report_realtime",] == 1
    sessions = {"running": 2, "slots": 4, "fit": 3, "load": 0.4}
    assert {name: found["thinker_report_sessions", name] for name in sessions} == sessions
    assert ("thinker_report_sessions", "slower") not in found, "it isn't known"
    assert not any(name[0].endswith(("_link", "_model", "_pacing")) for name in found)


def test_counters_show() -> None:
    metrics = ServerMetrics()
    metrics.closes.labels("1000").inc()
    metrics.lost_frames.inc(4)
    found = samples(metrics)
    assert found["thinker_closes_total", "1000"] == 1
    assert found["thinker_lost_frames_total",] == 4


def test_two_servers_in_one_process_do_not_meet() -> None:
    one, other = ServerMetrics(), ServerMetrics()
    one.sent_units.inc()
    assert samples(other)["thinker_sent_units_total",] == 0


def test_the_client_gets_medians(report: Report) -> None:
    metrics = client_metrics(report)
    assert metrics.stages_ms == {"encode": 3.5, "solve": 60.0}
    assert (metrics.model_side_ms, metrics.loop_ms) == (90.5, 0.0)
    assert (metrics.emitted, metrics.late, metrics.dropped) == (5, 1, 0)


def test_nothing_sampled_is_no_lag() -> None:
    assert LoopLag().p99_ms() == 0.0


def test_lag_is_a_percentile_in_milliseconds() -> None:
    lag = LoopLag()
    lag.record(-0.001)
    for ms in range(1, 1_001):
        lag.record(ms / 1_000)
    assert lag.p99_ms() == pytest.approx(990, rel=0.02)


async def test_a_blocked_loop_shows() -> None:
    lag = LoopLag()
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(0.15)  # noqa: ASYNC251 - the very thing that must be seen
    await asyncio.sleep(0.01)
    task.cancel()
    assert lag.p99_ms() > 50

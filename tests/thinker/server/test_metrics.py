"""The report in Prometheus' words and in the client's."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from thinker.server.metrics import ServerMetrics, client_metrics

REPORT: dict[str, object] = {
    "units": {"emitted": 5, "late": 1, "dropped": 0},
    "stages_ms": {"encode": {"p50": 3.5, "p99": None}, "solve": {"p50": 60.0, "p99": 70.0}},
    "model_side_ms": {"p50": 90.0, "p99": 99.0},
    "loop_ms": {"p50": None, "p99": None},
    "realtime": True,
    "link": "shm",
    "slice_bytes": 4096,
    "sessions": {"running": 2, "slots": 4, "fit": 3, "load": 0.4, "slower": None},
    "machine": {"cpu": {"cores": {"deep": 1}}},
}


def samples(metrics: ServerMetrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_number_of_the_report_is_a_gauge() -> None:
    found = samples(ServerMetrics(lambda: REPORT))
    assert found["thinker_report_units", "late"] == 1
    assert found["thinker_report_stages_ms", "solve", "p99"] == 70
    assert found["thinker_report_model_side_ms", "p50"] == 90
    assert found["thinker_report_slice_bytes",] == 4096
    assert found["thinker_report_realtime",] == 1
    assert [found["thinker_report_sessions", name] for name in ("running", "slots", "fit", "load")] == [
        2,
        4,
        3,
        0.4,
    ]
    assert ("thinker_report_sessions", "slower") not in found, "it isn't known"
    assert not any(name[0].endswith(("loop_ms", "link", "machine")) for name in found)


def test_counters_show() -> None:
    metrics = ServerMetrics(dict)
    metrics.closes.labels("1000").inc()
    metrics.lost_frames.inc(4)
    found = samples(metrics)
    assert found["thinker_closes_total", "1000"] == 1
    assert found["thinker_lost_frames_total",] == 4


def test_two_servers_in_one_process_do_not_meet() -> None:
    one, other = ServerMetrics(dict), ServerMetrics(dict)
    one.sent_units.inc()
    assert samples(other)["thinker_sent_units_total",] == 0


def test_the_client_gets_medians() -> None:
    metrics = client_metrics(REPORT)
    assert metrics.stages_ms == {"encode": 3.5, "solve": 60.0}
    assert (metrics.model_side_ms, metrics.loop_ms) == (90.0, 0.0)
    assert (metrics.emitted, metrics.late, metrics.dropped) == (5, 1, 0)
    assert client_metrics({}).stages_ms == {}


def test_a_report_of_another_shape_is_a_fault_of_ours() -> None:
    with pytest.raises(msgspec.ValidationError, match="late"):
        client_metrics({"units": {"late": "many"}})

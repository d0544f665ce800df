import math
import random
import threading
import tracemalloc

import pytest

from shared.reporting import Histogram, Stages


@pytest.mark.parametrize("percent", [1, 50, 90, 99, 100])
def test_percentiles_are_within_two_percent(percent: float) -> None:
    draw = random.Random(percent)
    values = [draw.lognormvariate(math.log(0.02), 1.5) for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    exact = sorted(values)[math.ceil(len(values) * percent / 100) - 1]
    assert histogram.percentile(percent) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("value", [1e-6, 1.5e-6, 1e-3, 0.16, 1.0, 999.0])
def test_a_single_value_is_every_percentile(value: float) -> None:
    histogram = Histogram()
    histogram.record(value)
    for percent in (0, 50, 99, 100):
        assert histogram.percentile(percent) == pytest.approx(value, rel=0.01)


def test_what_is_outside_the_range_is_counted_at_its_edge() -> None:
    histogram = Histogram()
    histogram.record(0.0)
    assert histogram.percentile(50) == 0
    histogram.record(1e6)
    assert histogram.percentile(100) == pytest.approx(1e3, rel=0.03)
    assert histogram.max == 1e6


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    stages = Stages()
    stages.record("solve", 0.05)
    tracemalloc.start()
    for number in range(50_000):
        stages.record("solve", 1e-6 * (1 + number))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 4096
    assert stages.count("solve") == 50_001


def test_figures_in_milliseconds() -> None:
    stages = Stages()
    for milliseconds in range(1, 101):
        stages.record("state", milliseconds / 1e3)
    stages.record("encode", 0.002)
    assert [stages.percentile_ms("state", p) for p in (50, 99)] == pytest.approx([50, 99], rel=0.02)
    assert stages.mean_ms("encode") == pytest.approx(2)
    assert stages.mean_ms("state") == pytest.approx(50.5)
    assert stages.percentile_ms("state", 90) == pytest.approx(90, rel=0.02)


def test_a_stage_that_never_ran_is_zero() -> None:
    stages = Stages()
    assert (stages.count("x"), stages.percentile_ms("x", 99), stages.mean_ms("x")) == (0, 0, 0)
    assert Histogram().percentile(50) == 0


def test_threads_lose_no_value() -> None:
    stages = Stages()

    def record() -> None:
        for _ in range(5_000):
            stages.record("solve", 0.01)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stages.count("solve") == 20_000

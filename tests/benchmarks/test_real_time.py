"""Sessions on the clock, through a Performer process."""

import dataclasses

import pytest

from benchmarks.harness import performer_process, pipeline_options
from benchmarks.real_time import hold_in_real_time, late_share
from shared.config import load_config
from shared.processes.model import load_model
from thinker.report import UnitCounts


@pytest.mark.slow
def test_sessions_are_held() -> None:
    config = dataclasses.replace(load_config("tiny"), sessions=2)
    family = load_model(config, "cpu")
    with performer_process(config, family) as link:
        held = hold_in_real_time(family, link, pipeline_options(config, 2, phases=2), sessions=2, seconds=1.0)
    assert held.sessions == 2
    assert held.thinker_busy > 0
    assert held.performer_busy > 0
    assert held.timings.stages.count("model_side") > 2


def test_units_given_up_are_late_too() -> None:
    assert late_share(UnitCounts(emitted=90, late=5, dropped=10)) == 0.15
    assert late_share(UnitCounts()) == 0.0

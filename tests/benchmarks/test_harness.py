"""Sessions through a Performer process, as the benches hold them."""

import dataclasses
import time
from collections.abc import Iterator

import pytest

from benchmarks import harness
from benchmarks.harness import ActiveUser, Performing
from shared.clock import UnpacedClock
from shared.config import load_config
from shared.memory import rss_mb
from shared.models.family import Family
from shared.processes.model import load_model
from thinker.engine.pipeline import PipelineOptions

SESSIONS = 3
CONFIG = dataclasses.replace(load_config("tiny"), sessions=SESSIONS)


@pytest.fixture(scope="module")
def family() -> Family:
    return load_model(CONFIG, "cpu")


@pytest.fixture(scope="module")
def performer(family: Family) -> Iterator[Performing]:
    with harness.performing(CONFIG, family) as performer:
        yield performer
    assert rss_mb(performer.pid) is None


def test_a_talker_types_now_and_then(family: Family) -> None:
    active_user = ActiveUser(family)
    assert not active_user.lacking()
    texts = [active_user.take().texts for _ in range(2 * harness.SENTENCE_UNITS)]
    assert [at for at, text in enumerate(texts) if text] == [0, harness.SENTENCE_UNITS]


def test_a_talker_can_be_late(family: Family) -> None:
    assert ActiveUser(family, arrives_at=time.monotonic() + 60).lacking()


@pytest.mark.slow
@pytest.mark.parametrize(("sessions", "phases"), [(1, 1), (3, 1), (3, 2)])
def test_unpaced(family: Family, performer: Performing, sessions: int, phases: int) -> None:
    options = PipelineOptions(slots=sessions, phases=phases)
    told: list[str] = []
    measured = harness.hold(
        family, performer.link, UnpacedClock(), options, units=6, sessions=sessions,
        when_warm=lambda: told.append("warm"),
    )  # fmt: skip
    assert told == ["warm"]
    assert measured.round_ms > 0
    assert measured.counts.emitted >= 6 * sessions
    assert measured.stages.count("model_side") == measured.counts.emitted


def test_one_process(family: Family) -> None:
    assert harness.one_process(family, 2, sessions=2) > 0


def test_warm_up_is_shared_out() -> None:
    assert [harness.warm_up_units(200, sessions) for sessions in (1, 4, 50)] == [12, 3, 1]
    assert harness.warm_up_units(2) == 2

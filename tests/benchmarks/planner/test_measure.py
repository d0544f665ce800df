import pytest
import torch

from benchmarks.planner.measure import Batch, weight_bytes
from benchmarks.planner.workload import STAGES
from shared.config import load_config
from shared.models.family import Family
from shared.processes.model import load_model


@pytest.fixture(scope="module")
def family() -> Family:
    return load_model(load_config("tiny"), "cpu")


def test_every_stage_of_every_unit_is_noted(family: Family) -> None:
    batch = Batch(family, 2)
    batch.run(3)
    slices = {"pack", "append"}
    assert {stage: len(times) for stage, times in batch.seconds.items()} == {
        stage: 6 if stage in slices else 3 for stage in STAGES
    }
    assert all(batch.median_ms(stage) > 0 and dict(batch.spread(stage))[99] >= 1 for stage in STAGES)
    batch.forget()
    assert not any(batch.seconds.values())


def test_the_replicas_get_what_the_thinker_wrote(family: Family) -> None:
    """What is measured is the real work: both sides solve a unit to the same latents."""
    batch = Batch(family, 2)
    batch.run(3)
    for _, work in batch.work()[:4]:
        work()
    replica = family.solve(batch.replicas, [3, 3])
    own = family.solve(batch.states, [3, 3])
    assert all(torch.equal(a, b) for a, b in zip(replica, own, strict=True))


def test_each_process_reads_weights_of_its_own(family: Family) -> None:
    read = weight_bytes(family)
    assert read.thinker > read.shared > read.performer > 0

"""Recorded passes are the launched ones. A recording is the work itself here, in its form for graphs."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from shared.devices import Device
from shared.models.family import UserUnit
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.passes import CapturedPasses, Passes

BuildFamily = Callable[..., PocketFamily]
UNITS = 9  # more than the rings hold


class Padding(Device):
    """A CPU that takes batches of the sizes of its buckets alone, as graphs do."""

    kind = "padding"


def captured(family: PocketFamily, sessions: int) -> CapturedPasses:
    cache = family.allocate(sessions).cache
    return CapturedPasses(family.config, family.weights.network, cache, Padding(dtype="float32"))


def latents_of(family: PocketFamily, memory: Passes, slots: list[int]) -> list[torch.Tensor]:
    """Sessions in some slots, each two units behind the one before."""
    rng = np.random.default_rng(5)
    states = [family.init_state(memory, slot, slot) for slot in slots]
    ages = [0] * len(slots)
    made = []
    for step in range(UNITS):
        rows = [row for row in range(len(slots)) if step >= 2 * row]
        some, units = [states[row] for row in rows], [ages[row] for row in rows]
        users = [
            UserUnit(
                pcm=(0.1 * rng.standard_normal(2560)).astype(np.float32),
                frames=rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8),
            )
            for _ in rows
        ]
        family.state_pass(some, units, users, family.encode(some, users))
        latents = family.solve(some, units)
        family.commit(some, units, latents)
        made += latents
        for row in rows:
            ages[row] += 1
    return made


@pytest.mark.parametrize("spans", [{}, {"picture": 4, "sound": 4, "text": 4}], ids=["tiered", "one span"])
def test_recorded_passes_give_what_launched_ones_give(
    tiny_family: BuildFamily, spans: dict[str, int]
) -> None:
    family = tiny_family(spans=spans)
    slots = [0, 2, 3]  # a batch of three is padded to four
    recorded = latents_of(family, captured(family, 4), slots)
    for one, two in zip(recorded, latents_of(family, family.allocate(4), slots), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


def test_recording_leaves_the_memory_empty(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    recorded, fresh = captured(family, 2).cache, family.allocate(2).cache
    assert torch.equal(recorded.kv_L2SNKD, fresh.kv_L2SNKD)
    assert torch.equal(recorded.hidden_SN, fresh.hidden_SN)

import itertools
import math

import pytest
import torch
from torch import Tensor

from shared.models.solver import euler, flow_times, unit_noise


@pytest.mark.parametrize("steps", [1, 3, 4, 7])
def test_times_go_from_noise_to_data(steps: int) -> None:
    times = flow_times(steps)
    assert len(times) == steps + 1
    assert times[0] == 1
    assert times[-1] == 0
    gaps = [a - b for a, b in itertools.pairwise(times)]
    assert gaps == pytest.approx([1 / steps] * steps)


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
def test_a_straight_flow_is_followed_exactly(steps: int) -> None:
    noise, data = torch.randn(6), torch.randn(6)
    made = euler(lambda _x, _step: noise - data, noise, flow_times(steps))
    torch.testing.assert_close(made, data, atol=1e-6, rtol=0)  # fp32 sums of up to 8 terms


def test_twice_the_steps_halve_the_error_of_a_curved_flow() -> None:
    def error(steps: int) -> float:
        made = euler(lambda x, _step: x, torch.ones(1, dtype=torch.float64), flow_times(steps))
        return abs(made.item() - math.exp(-1))

    assert error(64) / error(32) == pytest.approx(0.5, abs=0.02)


def test_every_step_is_told_its_number() -> None:
    seen: list[int] = []

    def velocity(x: Tensor, step: int) -> Tensor:
        seen.append(step)
        return torch.zeros_like(x)

    euler(velocity, torch.zeros(1), flow_times(3))
    assert seen == [0, 1, 2]


def test_noise_depends_on_seed_and_unit_alone() -> None:
    noise = unit_noise(7, 3, (5, 2))
    torch.randn(11)
    state = torch.get_rng_state()
    assert torch.equal(unit_noise(7, 3, (5, 2)), noise)
    assert torch.equal(torch.get_rng_state(), state)
    others = [unit_noise(7, 4, (5, 2)), unit_noise(8, 3, (5, 2))]
    assert not any(torch.isclose(noise, other).all() for other in others)


def test_noise_is_unit_normal() -> None:
    noise = unit_noise(0, 0, (100_000,))
    assert noise.mean().item() == pytest.approx(0, abs=0.02)  # six standard errors
    assert noise.std().item() == pytest.approx(1, abs=0.02)

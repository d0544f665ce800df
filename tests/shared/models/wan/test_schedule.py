import pytest
import torch
from torch import Tensor

from shared.models.wan.schedule import ScheduleConfig, Solver, denoise


def test_four_steps_become_the_published_timesteps() -> None:
    assert ScheduleConfig().timesteps(1) == pytest.approx([1000, 937.5, 833.333, 625], abs=1e-3)


def test_the_first_block_may_have_more_steps() -> None:
    one_step = ScheduleConfig(steps=(1000,), first_block_steps=(1000, 750, 500, 250))
    assert len(one_step.timesteps(0)) == 4
    assert one_step.timesteps(1) == [1000]
    assert ScheduleConfig(steps=(1000, 500)).timesteps(0) == ScheduleConfig(steps=(1000, 500)).timesteps(5)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"steps": ()}, "must name at least one"),
        ({"steps": (500, 750)}, "steps=.*must fall"),
        ({"steps": (1001,)}, "steps="),
        ({"steps": (1000, 0)}, "steps="),
        ({"first_block_steps": (250, 500)}, "first_block_steps="),
        ({"shift": 0.0}, "shift=0.0"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ScheduleConfig(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", list(Solver))
@pytest.mark.parametrize("steps", [(1000,), (1000, 500), (1000, 750, 500, 250)])
def test_a_true_flow_leads_to_the_data(solver: Solver, steps: tuple[int, ...]) -> None:
    """Where the network knows the data, x0 = x - sigma (noise - data) is the data at every step."""
    data = torch.randn(3, 4)

    def flow(x: Tensor, timestep: float) -> Tensor:
        sigma = timestep / 1000
        return (x - data) / sigma

    def noise(step: int) -> Tensor:
        return torch.randn(3, 4, generator=torch.Generator().manual_seed(step))

    timesteps = ScheduleConfig(steps=steps).timesteps(1)
    made = denoise(flow, noise, timesteps, solver, stopped=lambda: False)
    assert made is not None
    assert (made - data).abs().max() <= 1e-5


def test_renoising_mixes_the_estimate_with_fresh_noise() -> None:
    """x' = (1 - sigma') x0 + sigma' noise, written out by hand for two steps."""
    seen: list[Tensor] = []

    def flow(x: Tensor, _timestep: float) -> Tensor:
        seen.append(x)
        return torch.full_like(x, 2.0)

    noises = [torch.tensor([1.0]), torch.tensor([10.0])]
    made = denoise(flow, lambda step: noises[step], [1000.0, 500.0], Solver.RENOISE, stopped=lambda: False)
    assert seen[1].item() == pytest.approx(0.5 * (1 - 2) + 0.5 * 10)
    assert made is not None
    assert made.item() == pytest.approx(seen[1].item() - 0.5 * 2)


def test_it_stops_between_steps() -> None:
    calls = []

    def flow(x: Tensor, timestep: float) -> Tensor:
        calls.append(timestep)
        return x

    made = denoise(
        flow, lambda _: torch.zeros(1), [1000.0, 500.0], Solver.EULER, stopped=lambda: len(calls) == 1
    )
    assert made is None
    assert len(calls) == 1

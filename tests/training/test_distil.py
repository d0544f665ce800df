"""A student learns to do in few solver steps what its teacher does in many."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared.config import load_config
from shared.models.layout import STEPS_PER_UNIT, Tower
from shared.models.pocket.config import FRAMES_PER_UNIT, GESTURES, PocketConfig
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.solver import euler, flow_times
from shared.tables import from_table
from training import files
from training.distil import student_loss, train_distil, walk
from training.loop import CHECKPOINT, TrainConfig
from training.performer import AgentBatch, Latents, noise_like, remember, velocity
from training.recipes import DistilRecipe, load_recipe
from training.sequence import Sequence, lay_sequence
from training.tracks import Track

UNITS = 3


@pytest.fixture(autouse=True)
def calm() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def config() -> PocketConfig:
    table = load_config("tiny").model
    return from_table(PocketConfig, table | {"transformer": table["transformer"] | {"kv_heads": 2}}, "model")


@pytest.fixture
def sequence(config: PocketConfig) -> Sequence:
    return lay_sequence(config.layout(), Tower.SPEAKING, UNITS)


def teacher(config: PocketConfig) -> StreamerNetwork:
    network = StreamerNetwork(config).requires_grad_(False)
    for weight in network.parameters():
        weight.add_(0.2 * torch.randn_like(weight))
    return network


def random_batch(config: PocketConfig) -> AgentBatch:
    return AgentBatch(
        picture=torch.randn(2, UNITS, config.picture_tokens, config.video.latent_dim),
        sound=torch.randn(2, UNITS, STEPS_PER_UNIT, config.audio.latent_dim),
        phones=torch.randint(0, 40, (2, UNITS, STEPS_PER_UNIT)),
        words=torch.randint(0, 2, (2, UNITS, 1)),
        gestures=torch.randn(2, UNITS, FRAMES_PER_UNIT * GESTURES),
    )


def random_track(config: PocketConfig, frames: int = 80) -> Track:
    return Track(
        picture=torch.randn(frames, config.video.tokens_per_frame, config.video.latent_dim),
        sound=torch.randn(frames, config.audio.latent_dim),
        phones=torch.randint(0, 40, (frames,)),
        gesture=torch.randn(frames, GESTURES),
    )


def joined(latents: Latents) -> Tensor:
    return torch.cat([latents[0].flatten(2), latents[1].flatten(2)], dim=2)


@torch.no_grad()
def test_a_walk_is_what_the_runtime_s_solver_does(config: PocketConfig, sequence: Sequence) -> None:
    network, batch = teacher(config), random_batch(config)
    past, noise = remember(network, sequence, batch, batch.latents), noise_like(batch.latents)
    times = flow_times(4)
    cut = batch.picture[0, 0].numel()

    def step(x_BUN: Tensor, at: int) -> Tensor:
        x = x_BUN[..., :cut].reshape_as(noise[0]), x_BUN[..., cut:].reshape_as(noise[1])
        return joined(velocity(network, sequence, past, x, torch.full((2, UNITS), times[at])))

    half, end = walk(network, sequence, past, noise, steps=4, stops=2)
    torch.testing.assert_close(joined(end), euler(step, joined(noise), times))
    torch.testing.assert_close(joined(half), euler(step, joined(noise), times[:3]))


def test_a_student_that_is_its_teacher_has_nothing_to_learn(config: PocketConfig, sequence: Sequence) -> None:
    network, batch = teacher(config), random_batch(config)
    past, noise = remember(network, sequence, batch, batch.latents), noise_like(batch.latents)
    same = walk(network, sequence, past, noise, steps=2, stops=2)
    other = walk(network, sequence, past, noise, steps=8, stops=2)
    assert max(student_loss(network, sequence, past, noise, same).values()) < 1e-9
    assert min(student_loss(network, sequence, past, noise, other).values()) > 1e-6


def test_each_step_is_judged_from_where_the_student_is(config: PocketConfig, sequence: Sequence) -> None:
    network, batch = teacher(config), random_batch(config)
    past, noise = remember(network, sequence, batch, batch.latents), noise_like(batch.latents)
    goals = [noise_like(batch.latents), noise_like(batch.latents)]
    half, end = walk(network, sequence, past, noise, steps=2, stops=2)
    losses = student_loss(network, sequence, past, noise, goals)
    # What a step misses is its endpoint's distance from the goal, over the step's length.
    for index, name in enumerate(("picture", "sound")):
        first = (2 * (half[index] - goals[0][index])).square().mean()
        second = (2 * (end[index] - goals[1][index])).square().mean()
        torch.testing.assert_close(losses[name], (first + second) / 2)


def schedule(folder: Path, steps: int) -> TrainConfig:
    return TrainConfig(
        folder=folder, steps=steps, horizon=40, learning_rate=2e-3, warmup=2, ema=0.8, evaluate_every=1000
    )


def distil(folder: Path, config: PocketConfig, *, steps: int, resume: bool = False) -> StreamerNetwork:
    torch.manual_seed(1)
    network, track = teacher(config), random_track(config)
    return train_distil(
        schedule(folder, steps), network, track, track,
        batch=2, units=UNITS, teacher_steps=4, solver_steps=2, resume=resume,
    )  # fmt: skip


def test_the_student_comes_closer_than_its_teacher_in_as_few_steps(
    config: PocketConfig, tmp_path: Path
) -> None:
    distil(tmp_path, config, steps=40)
    rows = [line for line in (tmp_path / "log.jsonl").read_text().splitlines() if "untaught" in line]
    measured = json.loads(rows[-1])
    for name in ("picture", "sound"):
        assert measured[f"held_out_{name}"] < measured[f"untaught_{name}"]


def test_a_resumed_run_is_the_unbroken_run_and_the_listener_stays(
    config: PocketConfig, tmp_path: Path
) -> None:
    whole = distil(tmp_path / "whole", config, steps=4).state_dict()
    distil(tmp_path / "parts", config, steps=2)
    assert files.read(tmp_path / "parts" / CHECKPOINT)["step"] == 2
    parts = distil(tmp_path / "parts", config, steps=4, resume=True).state_dict()
    torch.manual_seed(1)
    before = teacher(config).state_dict()
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name
        assert torch.equal(value, before[name]) == name.startswith("listener."), name


def test_the_shipped_recipe_is_sound_and_steps_must_fit() -> None:
    recipe = load_recipe(DistilRecipe, "distil", None)
    assert recipe.solver_steps == 2
    with pytest.raises(ValueError, match="teacher_steps=8 is not a multiple of solver_steps=3"):
        DistilRecipe(schedule=recipe.schedule, solver_steps=3, teacher_steps=8)

"""Train a student to do in a few solver steps what the speaking tower, its teacher, does in many.

Progressive distillation (arXiv 2202.00512) in one go: the teacher walks from noise to its endpoint, and each
step of the student must end where the teacher's walk then is. From the same noise that is one place, so
nothing is averaged away; and unlike in reflow (arXiv 2209.03003) no path has to become straighter than the
few steps need. The student goes on from where its own last step ended, so that each step also mends the one
before.

All units of a sequence are solved at once, on the past as it is in training. That past is run once for each
of the two: its keys and values don't change with the flow time.
"""

import copy

import torch
from torch import Tensor, nn

from shared.models.layout import Tower
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.solver import flow_times
from training.loop import TrainConfig, train
from training.performer import (
    HISTORY_NOISE,
    AgentBatch,
    Latents,
    blurred,
    even_pieces,
    noise_like,
    random_pieces,
    remember,
    squared_error,
    velocity,
)
from training.sequence import Past, Sequence, lay_sequence
from training.tracks import Track


@torch.no_grad()
def walk(
    network: StreamerNetwork, sequence: Sequence, past: Past, noise: Latents, *, steps: int, stops: int
) -> list[Latents]:
    """Solve all units in `steps` Euler steps; return where that is after each 1 / `stops` of the way."""
    times, x, seen = flow_times(steps), noise, list[Latents]()
    for step in range(steps):
        made = velocity(network, sequence, past, x, _everywhere(times[step], noise))
        x = _go(x, made, times[step + 1] - times[step])
        if (step + 1) % (steps // stops) == 0:
            seen.append(x)
    return seen


def student_loss(
    student: StreamerNetwork, sequence: Sequence, past: Past, noise: Latents, goals: list[Latents]
) -> dict[str, Tensor]:
    """Squared error of the velocities that lead from each of the student's own points to the next goal."""
    times, x, losses = flow_times(len(goals)), noise, list[dict[str, Tensor]]()
    for step, goal in enumerate(goals):
        ahead = times[step + 1] - times[step]
        made = velocity(student, sequence, past, x, _everywhere(times[step], noise))
        losses.append(squared_error(made, ((goal[0] - x[0]) / ahead, (goal[1] - x[1]) / ahead)))
        x = _go(x, (made[0].detach(), made[1].detach()), ahead)
    return {name: torch.stack([each[name] for each in losses]).mean() for name in losses[0]}


def _everywhere(tau: float, noise: Latents) -> Tensor:
    return torch.full(noise[0].shape[:2], tau, device=noise[0].device)


def _go(x: Latents, made: Latents, ahead: float) -> Latents:
    return x[0] + ahead * made[0], x[1] + ahead * made[1]


def train_distil(
    config: TrainConfig,
    teacher: StreamerNetwork,
    track: Track,
    held_out: Track,
    *,
    batch: int,
    units: int,
    teacher_steps: int,
    solver_steps: int,
    resume: bool,
) -> StreamerNetwork:
    """Train a copy of `teacher` for `solver_steps`, a divisor of `teacher_steps`.

    The log's held-out figures are the mean squared distances from the teacher's endpoints: of the student
    and, as `untaught`, of the teacher itself in as few steps.

    Raises:
        TrainingError: a track is shorter than one sequence of `units` units.
    """
    torch.manual_seed(config.seed)
    teacher = teacher.to(config.device).eval().requires_grad_(False)
    student = copy.deepcopy(teacher).requires_grad_(True)
    student.listener.requires_grad_(False)
    sequence = lay_sequence(teacher.config.layout(), Tower.SPEAKING, units).to(config.device)
    pieces, shown = random_pieces(track, batch, units), even_pieces(held_out, units).to(config.device)

    @torch.no_grad()
    def taught(piece: AgentBatch, history: Latents, noise: Latents) -> list[Latents]:
        past = remember(teacher, sequence, piece, history)
        return walk(teacher, sequence, past, noise, steps=teacher_steps, stops=solver_steps)

    def losses(step: int) -> dict[str, Tensor]:
        piece = pieces(step, config.seed).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            noise, history = noise_like(piece.latents), blurred(piece.latents, HISTORY_NOISE)
            goals = taught(piece, history, noise)
            past = remember(student, sequence, piece, history)
            return student_loss(student, sequence, past, noise, goals)

    def endpoint(network: StreamerNetwork, noise: Latents) -> Latents:
        past = remember(network, sequence, shown, shown.latents)
        return walk(network, sequence, past, noise, steps=solver_steps, stops=1)[0]

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # always the same units and noise
        assert isinstance(model, StreamerNetwork)
        torch.manual_seed(0)
        noise = noise_like(shown.latents)
        goal = taught(shown, shown.latents, noise)[-1]
        return {
            f"{which}_{name}": value.item()
            for which, network in (("held_out", model), ("untaught", teacher))
            for name, value in squared_error(endpoint(network, noise), goal).items()
        }

    average = train(config, student, losses, evaluate, resume=resume)
    student.load_state_dict(average)
    return student.eval()

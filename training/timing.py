"""Train the phone timing: how many frames each phone lasts, counted in the recordings' own slots."""

import torch
from torch.nn import functional as F

from shared.models.pocket.speech.phones import PHONE_IDS, SILENCE
from shared.models.pocket.speech.pointer import MAX_FRAMES, NEIGHBOURS, PhoneTimer
from training.data.voices.agent import AgentUtterance
from training.data.voices.phones import frames_of_each


def examples(speech: list[AgentUtterance]) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of seven phones [E, 7] and how many frames the middle one lasted, minus one [E]."""
    windows, lengths = [], []
    for utterance in speech:
        ids = [PHONE_IDS[phone] for phone, _ in utterance.phones]
        counts = frames_of_each(utterance.phones)
        padded = [SILENCE] * NEIGHBOURS + ids + [SILENCE] * NEIGHBOURS
        for index, count in enumerate(counts):
            windows.append(padded[index : index + 2 * NEIGHBOURS + 1])
            lengths.append(min(max(count, 1), MAX_FRAMES) - 1)
    return torch.tensor(windows), torch.tensor(lengths)


def train_timing(
    speech: list[AgentUtterance],
    held_out: list[AgentUtterance],
    *,
    epochs: int = 6,
    start: PhoneTimer | None = None,
) -> tuple[PhoneTimer, float]:
    """Train for half a minute, from `start` or from nothing.

    Returns:
        The model, and the share of phones of held-out speech whose length it gives exactly.
    """
    torch.manual_seed(0)
    timer = start or PhoneTimer()
    windows, lengths = examples(speech)
    test_windows, test_lengths = examples(held_out)
    optimizer = torch.optim.AdamW(timer.parameters(), lr=2e-3, weight_decay=0.02)
    for _ in range(epochs):
        for chunk in torch.split(torch.randperm(len(windows)), 512):
            loss = F.cross_entropy(timer(windows[chunk]), lengths[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        exact = (timer(test_windows).argmax(-1) == test_lengths).float().mean().item()
    return timer.eval(), exact

"""Latents of films, made ahead of the training in parts, each a file; a part is the same whoever makes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shared.models.wan.language import SLOTS, PocketPrompt
from training.files import digest_of, read, write
from training.film.autoencoder import PocketEncoder, frames_of, to_tensor
from training.film.scenes import DrawnFilm, random_prompt

FILMS = 256  # of a part
VERSION = 2  # of what is drawn
LATENTS = 12  # of a film


@dataclass(frozen=True, slots=True)
class LatentFilms:
    """Films as [N, LATENTS, C, H, W] with what is in them; the latents are not normalised."""

    latents: Tensor
    prompts: list[PocketPrompt]


def part_of(folder: Path, encoder: PocketEncoder, number: int, *, judged: bool = False) -> LatentFilms:
    """Part `number`, read if it was made before for this encoder, else made. `judged`: never trained on."""
    kind = "judged" if judged else "films"
    path = folder / f"{kind}-{digest_of(encoder.state_dict().values())}-v{VERSION}-{number}.pt"
    if not path.exists():
        made = _make(encoder, number, judged=judged)
        choices = [[list(SLOTS[slot]).index(getattr(p, slot)) for slot in SLOTS] for p in made.prompts]
        write(path, {"latents": made.latents, "choices": torch.tensor(choices)})
    saved = read(path)
    prompts = [
        PocketPrompt(**{slot: list(SLOTS[slot])[n] for slot, n in zip(SLOTS, row, strict=True)})
        for row in saved["choices"].tolist()
    ]
    return LatentFilms(saved["latents"], prompts)


@torch.no_grad()
def _make(encoder: PocketEncoder, number: int, *, judged: bool) -> LatentFilms:
    rng = np.random.default_rng((number, int(judged), 5))
    prompts, latents = [], []
    for _ in range(FILMS):
        film = DrawnFilm(random_prompt(rng, judged=judged), int(rng.integers(2**31)))
        frames = to_tensor(film.frames(frames_of(LATENTS)))[None]
        with torch.autocast("cpu", torch.bfloat16):
            latents.append(encoder(frames).half())
        prompts.append(film.prompt)
    return LatentFilms(torch.cat(latents), prompts)


def statistics(parts: Iterator[LatentFilms]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each latent channel, [C] each."""
    latents = torch.cat([part.latents.float() for part in parts])
    return latents.mean((0, 1, 3, 4)), latents.std((0, 1, 3, 4))

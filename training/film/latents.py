"""Latents of films, made ahead of the training in parts, each a file; a part is the same whoever makes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shared.models.wan.language import PocketPrompt
from shared.models.wan.layout import Start
from training.files import digest_of, read, write
from training.film.autoencoder import PocketEncoder, frames_of, to_tensor
from training.film.scenes import DrawnFilm, random_prompt

LATENTS = 12  # of a film


@dataclass(frozen=True, slots=True)
class LatentFilms:
    """Films as [N, LATENTS, C, H, W] with what is in them; the latents are not normalised."""

    latents: Tensor
    prompts: list[PocketPrompt]
    layouts: list[list[Start]]


def part_of(
    folder: Path, encoder: PocketEncoder, number: int, *, films: int, judged: bool = False
) -> LatentFilms:
    """Part `number` of so many films, read if it is there, else made; `judged`: never trained on."""
    kind = "judged" if judged else "films"
    path = folder / f"{kind}-{digest_of(encoder.state_dict().values())}-{films}x{LATENTS}-{number}.pt"
    drawn = _films(number, films, judged=judged)
    if not path.exists():
        write(path, {"latents": _latents(encoder, drawn)})
    return LatentFilms(
        read(path)["latents"], [film.prompt for film in drawn], [film.starts for film in drawn]
    )


def _films(number: int, count: int, *, judged: bool) -> list[DrawnFilm]:
    rng = np.random.default_rng((number, int(judged), 5))
    return [DrawnFilm(random_prompt(rng, judged=judged), int(rng.integers(2**31))) for _ in range(count)]


@torch.no_grad()
def _latents(encoder: PocketEncoder, films: list[DrawnFilm]) -> Tensor:
    latents = []
    for film in films:
        frames = to_tensor(film.frames(frames_of(LATENTS)))[None]
        with torch.autocast("cpu", torch.bfloat16):
            latents.append(encoder(frames).half())
    return torch.cat(latents)


def statistics(parts: Iterator[LatentFilms]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each latent channel, [C] each."""
    latents = torch.cat([part.latents.float() for part in parts])
    return latents.mean((0, 1, 3, 4)), latents.std((0, 1, 3, 4))

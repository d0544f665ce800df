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

FILMS = 256  # of a part
VERSION = 2  # of what is drawn
LATENTS = 12  # of a film


@dataclass(frozen=True, slots=True)
class LatentFilms:
    """Films as [N, LATENTS, C, H, W] with what is in them; the latents are not normalised."""

    latents: Tensor
    prompts: list[PocketPrompt]
    layouts: list[list[Start]]


def part_of(folder: Path, encoder: PocketEncoder, number: int, *, judged: bool = False) -> LatentFilms:
    """Part `number`, read if it was made before for this encoder, else made. `judged`: never trained on."""
    kind = "judged" if judged else "films"
    path = folder / f"{kind}-{digest_of(encoder.state_dict().values())}-v{VERSION}-{number}.pt"
    films = _films(number, judged=judged)
    if not path.exists():
        write(path, {"latents": _latents(encoder, films)})
    return LatentFilms(
        read(path)["latents"], [film.prompt for film in films], [film.starts for film in films]
    )


def _films(number: int, *, judged: bool) -> list[DrawnFilm]:
    rng = np.random.default_rng((number, int(judged), 5))
    return [DrawnFilm(random_prompt(rng, judged=judged), int(rng.integers(2**31))) for _ in range(FILMS)]


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

"""A film made in one process, without link, credits or threads: what two processes must equal."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shared.film_request import FilmBlock, FilmRequest, blocks_of
from shared.models.film import FilmFamily


def make_film(family: FilmFamily, request: FilmRequest) -> Iterator[tuple[FilmBlock, NDArray[np.uint8]]]:
    """Every block with its frames [F, H, W, 3]; `family` holds both halves' weights."""
    state, decoder = family.allocate(1)[0], family.init_decoder()
    for block in blocks_of(request, family.format):
        if block.of_scene == 0:
            family.begin_scene(state, request.scenes[block.scene].prompt, request.seed)
            decoder = family.init_decoder()
        latents = family.denoise(state, block.number, lambda: False)
        assert latents is not None
        if not block.last_of_scene:
            family.remember(state, latents)
        yield block, family.decode(decoder, latents)[: block.frames]
    family.end_film(state)

"""The family's promises, on the tiny model."""

import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shared.config import RuntimeConfig
from shared.errors import CheckpointError, ConfigError
from shared.film_request import FilmRequest, Scene
from shared.models.family import Role
from shared.models.film import film_builder, makes_films
from shared.models.single_film import make_film
from shared.models.wan.family import WanFamily
from shared.processes.model import load_film_model

PROMPT = "two red circles move left over a blue sky"


def request(*scenes: tuple[str, int], seed: int = 1) -> FilmRequest:
    return FilmRequest(scenes=tuple(Scene(prompt=p, frames=n) for p, n in scenes), seed=seed, fps=16)


def film(family: WanFamily, asked: FilmRequest) -> NDArray[np.uint8]:
    return np.concatenate([frames for _, frames in make_film(family, asked)])


def test_a_film_has_the_frames_that_were_asked_for(tiny: WanFamily) -> None:
    made = film(tiny, request((PROMPT, 50)))
    assert made.shape == (50, 48, 64, 3)
    assert made.std() > 1


def test_the_same_seed_gives_the_same_film_and_another_another(tiny: WanFamily) -> None:
    first, again, other = (film(tiny, request((PROMPT, 21), seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_scene_begins_anew(tiny: WanFamily) -> None:
    """Its frames do not depend on the scene before; the noise counts blocks through the film."""
    one = film(tiny, request((PROMPT, 21), ("a star", 21)))
    other = film(tiny, request(("a blue square spins", 21), ("a star", 21)))
    assert not np.array_equal(one[:21], other[:21])
    assert np.array_equal(one[21:], other[21:])


def test_a_film_does_not_depend_on_others_that_are_made_between(tiny: WanFamily) -> None:
    states, decoders = tiny.allocate(2), [tiny.init_decoder(), tiny.init_decoder()]
    made: list[list[NDArray[np.uint8]]] = [[], []]
    for state, prompt in zip(states, (PROMPT, "a star"), strict=True):
        tiny.begin_scene(state, prompt, 1)
    for block in range(4):
        for state, decoder, frames in zip(states, decoders, made, strict=True):
            latents = tiny.denoise(state, block, lambda: False)
            assert latents is not None
            tiny.remember(state, latents)
            frames.append(tiny.decode(decoder, latents))
    alone = film(tiny, request((PROMPT, 45)))
    assert np.array_equal(np.concatenate(made[0]), alone)


def test_a_block_that_was_given_up_leaves_no_trace(tiny: WanFamily) -> None:
    def run(gives_up: bool) -> torch.Tensor:
        state = tiny.allocate(1)[0]
        tiny.begin_scene(state, PROMPT, 1)
        for block in range(3):
            if gives_up and block == 1:
                looks = iter([False, False, True])
                assert tiny.denoise(state, block, looks.__next__) is None
            latents = tiny.denoise(state, block, lambda: False)
            assert latents is not None
            tiny.remember(state, latents)
        return latents

    assert torch.equal(run(gives_up=True), run(gives_up=False))


def test_a_new_prompt_changes_what_follows_and_nothing_before(tiny: WanFamily) -> None:
    def run(change_at: int | None) -> list[torch.Tensor]:
        state, blocks = tiny.allocate(1)[0], []
        tiny.begin_scene(state, PROMPT, 1)
        for block in range(3):
            if block == change_at:
                tiny.change_prompt(state, "a black star bounces over a yellow desert")
            latents = tiny.denoise(state, block, lambda: False)
            assert latents is not None
            tiny.remember(state, latents)
            blocks.append(latents)
        return blocks

    usual, changed = run(None), run(1)
    assert torch.equal(usual[0], changed[0])
    assert not torch.equal(usual[1], changed[1])


def test_an_ended_film_leaves_nothing_in_memory(tiny: WanFamily) -> None:
    state = tiny.allocate(1)[0]
    tiny.begin_scene(state, PROMPT, 1)
    latents = tiny.denoise(state, 0, lambda: False)
    assert latents is not None
    tiny.remember(state, latents)
    assert any(part.any() for part in state.cache.memory())
    tiny.end_film(state)
    assert not any(part.any() for part in state.cache.memory())
    assert not state.text


def test_each_half_alone_has_the_same_weights_as_both(tiny: WanFamily, tiny_config: RuntimeConfig) -> None:
    performer = load_film_model(tiny_config, "cpu", Role.PERFORMER)
    thinker = load_film_model(tiny_config, "cpu", Role.THINKER)
    assert performer.digest == thinker.digest == tiny.digest
    state = performer.allocate(1)[0]
    performer.begin_scene(state, PROMPT, 1)
    latents = performer.denoise(state, 0, lambda: False)
    assert latents is not None
    expected = next(iter(make_film(tiny, request((PROMPT, 9)))))[1]
    assert np.array_equal(thinker.decode(thinker.init_decoder(), latents), expected)


def test_films_of_any_length_keep_their_memory(tiny: WanFamily) -> None:
    state = tiny.allocate(1)[0]
    tiny.begin_scene(state, PROMPT, 1)
    sizes = set()
    for block in range(12):
        latents = tiny.denoise(state, block, lambda: False)
        assert latents is not None
        assert latents.isfinite().all()
        tiny.remember(state, latents)
        sizes.add(sum(part.nbytes for part in state.cache.memory()))
    assert sizes == {tiny.film_bytes()}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"width": 100}, "width=100 must be a multiple of 16"),
        ({"window": 7}, "window=7"),
        ({"fps": 0}, "fps=0"),
        ({"decoder": "vae"}, "decoder"),
        ({"dit": {"heads": 5}}, "heads=5"),
        ({"schedule": {"steps": []}}, "steps"),
        ({"colour": 1}, "colour is not a setting"),
        ({"taehv": {"latent_channels": 4}}, "latent_channels=4"),
    ],
)
def test_wrong_tables_are_refused_before_anything_is_built(table: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        film_builder("wan", table)


def test_unknown_families_are_named() -> None:
    assert makes_films("wan")
    assert not makes_films("pocket")
    with pytest.raises(ConfigError, match="family='nothing' is not installed"):
        film_builder("nothing", {})


def test_weights_that_are_not_there_are_said_to_be_missing(tiny_config: RuntimeConfig) -> None:
    with pytest.raises(CheckpointError, match="is not there"):
        load_film_model(dataclasses.replace(tiny_config, weights="/nowhere"), "cpu")

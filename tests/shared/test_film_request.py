import itertools

import pytest

from shared.film_request import FilmRequest, Scene, blocks_of
from shared.models.film import FilmFormat

SHAPE = FilmFormat(width=160, height=96, fps=16, block=3, frames_per_latent=4)
FRAMEWISE = FilmFormat(width=160, height=96, fps=16, block=1, frames_per_latent=4)


def request(*frames: int | None) -> FilmRequest:
    return FilmRequest(scenes=tuple(Scene(prompt="x", frames=n) for n in frames), fps=16)


@pytest.mark.parametrize(("frames", "blocks"), [(1, 1), (9, 1), (10, 2), (21, 2), (81, 7), (82, 8)])
def test_a_scene_has_as_many_blocks_as_it_needs(frames: int, blocks: int) -> None:
    made = list(blocks_of(request(frames), SHAPE))
    assert len(made) == blocks == SHAPE.blocks(frames)
    assert sum(block.frames for block in made) == frames
    assert [block.last for block in made] == [False] * (blocks - 1) + [True]


def test_three_scenes_of_81_frames_are_243_frames_in_21_blocks() -> None:
    made = list(blocks_of(request(81, 81, 81), SHAPE))
    assert [block.frames for block in made] == 3 * [9, 12, 12, 12, 12, 12, 12]
    assert [block.number for block in made] == list(range(21))
    assert [block.of_scene for block in made if block.last_of_scene] == [6, 6, 6]
    assert [block.first_frame for block in made if block.of_scene == 0] == [0, 81, 162]
    assert [block.last for block in made].index(True) == 20


def test_framewise_blocks_are_one_frame_and_then_four() -> None:
    assert [block.frames for block in blocks_of(request(10), FRAMEWISE)] == [1, 4, 4, 1]


def test_a_film_without_an_end_has_none() -> None:
    made = list(itertools.islice(blocks_of(request(None), SHAPE), 1000))
    assert not any(block.last or block.last_of_scene for block in made)
    assert request(None).frames is None
    assert request(5, 6).frames == 11

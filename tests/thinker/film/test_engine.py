"""The engine with a real Performer's loop behind a link: order, credits, prompts, ends."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from film_pair import PROMPT, FilmPair, request
from film_pair import tiny as tiny  # noqa: PLC0414 - the fixture

from shared.models.single_film import make_film
from shared.models.wan.family import WanFamily
from thinker.film.video_encoder import VideoShape, X264Encoder


@pytest.fixture
def pair(tiny: WanFamily) -> Iterator[FilmPair]:
    made = FilmPair(tiny, films=2)
    yield made
    made.close()


def until(condition: object, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_halves_over_a_link_give_the_bytes_of_one_process(pair: FilmPair, tiny: WanFamily) -> None:
    asked = request((PROMPT, 33), ("a star spins over a black night", 25))
    watched = pair.begin(asked)
    watched.wait(lambda: bool(watched.fragments) and watched.fragments[-1].block.last)
    encoder = X264Encoder(VideoShape(64, 48, 16))
    alone = [
        encoder.encode(frames, number=block.number, first_frame=block.first_frame).fragment
        for block, frames in make_film(tiny, asked)
    ]
    assert [fragment.encoded.fragment for fragment in watched.fragments] == alone
    assert [f.block.number for f in watched.fragments] == list(range(len(alone)))
    assert [f.block.scene for f in watched.fragments] == [0, 0, 0, 1, 1, 1]
    assert sum(f.block.frames for f in watched.fragments) == 58


def test_two_films_at_once_are_what_they_are_alone(pair: FilmPair) -> None:
    alone = pair.begin(request((PROMPT, 45)))
    alone.wait_blocks(4)
    until(lambda: pair.engine.report().running == 0)
    one, other = pair.begin(request((PROMPT, 45))), pair.begin(request(("a star", 45)))
    one.wait_blocks(4)
    other.wait_blocks(4)
    assert [f.encoded for f in one.fragments] == [f.encoded for f in alone.fragments]
    assert one.fragments[0].encoded != other.fragments[0].encoded


def test_a_film_whose_client_takes_nothing_is_made_so_far_and_no_further(pair: FilmPair) -> None:
    slow = pair.begin(request((PROMPT, None)), takes=False)
    slow.wait_blocks(2)
    until(lambda: pair.engine.stages.count("denoise") == 4)
    quick = pair.begin(request(("a star", 81)))  # others go on
    quick.wait_blocks(7)
    assert len(slow.fragments) == 2
    assert pair.engine.stages.count("denoise") == 4 + 7  # two taken, one waits, one more is done
    assert slow.film is not None
    pair.engine.take(slow.film)
    slow.wait_blocks(3)


def test_a_new_prompt_takes_effect_and_says_where(pair: FilmPair) -> None:
    watched = pair.begin(request((PROMPT, None)), takes=False)
    watched.wait_blocks(1)
    assert watched.film is not None
    pair.engine.change_prompt(watched.film, "a black star bounces over a yellow desert")
    for count in range(2, 12):
        pair.engine.take(watched.film)
        watched.wait_blocks(count)
    prompts = [fragment.prompt for fragment in watched.fragments]
    changed = prompts.index("a black star bounces over a yellow desert")
    assert 1 <= changed <= 5  # what was made before is shown
    assert set(prompts[:changed]) == {PROMPT}
    assert set(prompts[changed:]) == {"a black star bounces over a yellow desert"}


def test_a_closed_film_ends_within_a_block_and_its_place_is_free(pair: FilmPair) -> None:
    films = [pair.begin(request((PROMPT, None)), takes=False) for _ in range(2)]
    assert pair.engine.open_film(request((PROMPT, 9)), on_fragment=print, on_end=print) is None
    for watched in films:
        watched.wait_blocks(1)
        assert watched.film is not None
        pair.engine.close_film(watched.film)
    made = pair.engine.stages.count("denoise")
    again = pair.begin(request(("a star", 21)))
    again.wait_blocks(2)
    assert pair.engine.stages.count("denoise") <= made + 2 + 2
    assert pair.engine.counts.stopped == 2
    until(lambda: pair.engine.counts.finished == 1)


def test_a_performer_that_goes_ends_all_films_with_a_reason(pair: FilmPair) -> None:
    watched = pair.begin(request((PROMPT, None)), takes=False)
    watched.wait_blocks(1)
    pair.stop_performer.set()
    watched.wait(lambda: bool(watched.reasons))
    assert watched.reasons == ["the performer has gone away"]
    assert pair.engine.fault == "the performer has gone away"
    assert not pair.engine.ready
    assert pair.engine.open_film(request((PROMPT, 9)), on_fragment=print, on_end=print) is None


def test_stages_overlap_in_order(pair: FilmPair) -> None:
    watched = pair.begin(request((PROMPT, 81)))
    watched.wait_blocks(7)
    for fragment in watched.fragments:
        times = {stage.stage: stage for stage in fragment.stages}
        assert (
            times["denoise"].ended <= times["decode"].began <= times["decode"].ended <= times["encode"].began
        )
        assert ("remember" in times) == (fragment.block.number > 0)
    report = pair.engine.report()
    assert report.films.blocks == 7
    assert report.films.frames == 81
    assert all(report.stages_ms[name].p50 > 0 for name in ("denoise", "remember", "decode", "encode"))
    assert np.isfinite(report.first_fragment_ms.p50)

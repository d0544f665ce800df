import numpy as np
import pytest

from shared.models.wan.language import SLOTS, Figure, FilmColour, Motion, Number, Place, PocketPrompt, Size
from shared.models.wan.layout import HEIGHT, RADIUS, WIDTH, arrange, raised
from training.film.checker import SPAN, read_film
from training.film.scenes import DrawnFilm, held_out, random_prompt


def test_a_film_is_drawn_the_same_every_time() -> None:
    prompt = PocketPrompt(number=Number.THREE, motion=Motion.BOUNCE)
    assert np.array_equal(DrawnFilm(prompt, 3).frames(4, 7), DrawnFilm(prompt, 3).frames(11)[7:])
    assert not np.array_equal(DrawnFilm(prompt, 3).frame(0), DrawnFilm(prompt, 4).frame(0))


def test_what_is_judged_is_never_trained_on() -> None:
    rng = np.random.default_rng(0)
    trained = [random_prompt(rng) for _ in range(300)]
    judged = [random_prompt(rng, judged=True) for _ in range(100)]
    assert not any(map(held_out, trained))
    assert all(map(held_out, judged))
    for slot, kind in SLOTS.items():
        assert {getattr(prompt, slot) for prompt in judged} == set(kind)


@pytest.mark.parametrize("motion", list(Motion))
def test_things_begin_apart_and_inside(motion: Motion) -> None:
    for seed in range(20):
        prompt = PocketPrompt(number=Number.THREE, size=Size.MEDIUM, motion=motion)
        starts = arrange(prompt, RADIUS[prompt.size], np.random.default_rng(seed))
        assert len(starts) == 3
        for n, one in enumerate(starts):
            assert 0 < one.x < WIDTH
            assert 0 < one.y < HEIGHT
            for other in starts[:n]:
                assert np.hypot(one.x - other.x, one.y - other.y) > RADIUS[prompt.size]


def test_noise_is_raised_where_things_begin() -> None:
    starts = arrange(PocketPrompt(number=Number.TWO), 12.0, np.random.default_rng(1))
    hills = raised(starts, 16, 12, 20)[0]
    assert hills.mean() < 0.2
    for start in starts:
        assert hills[int(start.y / 8), int(start.x / 8)] > 1


def test_the_checker_sees_what_is_drawn() -> None:
    """Its share of right answers on drawn films is its ceiling; the card states it."""
    rng = np.random.default_rng(4)
    right: dict[str, list[bool]] = {slot: [] for slot in SLOTS}
    for seed in range(40):
        prompt = random_prompt(rng, judged=True)
        seen = read_film(DrawnFilm(prompt, seed).frames(SPAN))
        for slot in SLOTS:
            right[slot].append(getattr(prompt, slot) is getattr(seen, slot))
    shares = {slot: sum(hits) / len(hits) for slot, hits in right.items()}
    assert min(shares[slot] for slot in ("number", "colour", "place")) >= 0.95
    assert min(shares[slot] for slot in ("shape", "motion")) >= 0.85


def test_the_checker_is_no_oracle() -> None:
    """What is not there it does not see: another colour, another number, another motion."""
    drawn = DrawnFilm(
        PocketPrompt(number=Number.TWO, colour=FilmColour.GREEN, shape=Figure.SQUARE), 1
    ).frames(SPAN)
    seen = read_film(drawn)
    assert (seen.number, seen.colour, seen.shape) == (Number.TWO, FilmColour.GREEN, Figure.SQUARE)
    backwards = read_film(drawn[::-1])
    assert (seen.motion, backwards.motion) == (Motion.RIGHT, Motion.LEFT)
    empty = read_film(DrawnFilm(PocketPrompt(place=Place.SEA), 0, empty=True).frames(SPAN))
    assert empty.place is Place.SEA

import colorsys
import itertools

import numpy as np
import pytest

from shared.models.pocket.dialogue.replies import Colour
from training.data.vision.look import somebody
from training.data.vision.paints import PAINTS, SEEN, nameable
from training.data.vision.scene import COLOURS, follow, still, watch
from training.data.vision.shapes import Joint, box, ellipse, paint
from training.data.vision.thing import HELD_OUT_KINDS, KINDS, thing
from training.errors import TrainingError


@pytest.fixture(scope="module")
def many():
    return [watch(np.random.default_rng([5, index]), 1) for index in range(250)]


def test_shapes_of_a_sight():
    sight = watch(np.random.default_rng(1), 3)
    assert sight.frames.shape == (12, 64, 64, 3)
    assert sight.frames.dtype == np.uint8
    assert sight.present.shape == (3,)
    assert sight.place.shape == (3, 2)
    assert sight.colour.shape == (3,)


@pytest.mark.parametrize("held_out", [False, True])
def test_same_seed_same_sight(held_out):
    one, other = (watch(np.random.default_rng(3), 2, held_out=held_out) for _ in range(2))
    for field in ("frames", "present", "place", "colour"):
        assert (getattr(one, field) == getattr(other, field)).all()


def test_how_often_somebody_and_something_is_seen(many):
    present = np.concatenate([sight.present for sight in many])
    colour = np.concatenate([sight.colour for sight in many])
    place = np.concatenate([sight.place for sight in many])
    assert 0.6 < present.mean() < 0.8
    assert 0.25 < (colour > 0).mean() < 0.5
    assert set(colour.tolist()) == {int(each) for each in Colour}
    assert 0.02 < ((colour > 0) & ~present).mean() < 0.15
    assert (np.abs(place) <= 1).all()
    assert (place[~present] == 0).all()


def test_some_scenes_are_of_no_camera(many):
    dead = [sight for sight in many if (sight.frames == sight.frames[0, 0, 0]).all()]
    assert dead
    for sight in dead:
        assert not sight.present.any()
        assert not sight.colour.any()


def test_a_followed_path_is_the_place():
    path = np.stack([np.linspace(-0.6, 1.4, 40), np.full(40, -0.2)], axis=1)
    sight = follow(np.random.default_rng(2), path)
    ends = path[3::4]
    inside = ends[:, 0] <= 1
    assert (sight.present == inside).all()
    assert np.allclose(sight.place[inside], ends[inside], atol=1e-5)


def test_a_path_of_broken_units_is_refused():
    with pytest.raises(TrainingError, match="multiple of 4"):
        follow(np.random.default_rng(2), np.zeros((6, 2)))


@pytest.mark.parametrize("colour", list(Colour))
def test_a_posed_picture_is_as_asked(colour):
    sight = still(np.random.default_rng(int(colour)), 2, place=(0.25, -0.25), colour=colour)
    assert sight.present.all()
    assert np.allclose(sight.place, (0.25, -0.25))
    assert (sight.colour == colour).all()
    nobody = still(np.random.default_rng(int(colour)), 2, place=None, colour=colour)
    assert not nobody.present.any()
    assert (nobody.colour == colour).all()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_held_thing_shows_in_its_colour(colour):
    """Somewhere in the picture are pixels of that name, more than without the thing."""

    def named(sight):
        pixels = sight.frames[-1].reshape(-1, 3).astype(float)
        return sum(nameable(colour, tuple(pixel)) for pixel in pixels.tolist())

    held = [named(still(np.random.default_rng(seed), 1, place=(0, -0.3), colour=colour)) for seed in range(4)]
    assert np.median(held) > 15


def test_names_of_colours_do_not_overlap():
    for one, other in itertools.combinations(COLOURS, 2):
        for share in itertools.product((0.05, 0.5, 0.95), repeat=3):
            parts = [low + at * (high - low) for (low, high), at in zip(PAINTS[one], share, strict=True)]
            seen = tuple(255 * part for part in colorsys.hsv_to_rgb((parts[0] / 360) % 1, *parts[1:]))
            assert nameable(one, seen)
            assert not nameable(other, seen)
    assert PAINTS.keys() == SEEN.keys() == set(COLOURS)


def test_held_out_kinds_are_all_of_held_out_pictures_and_in_no_others():
    rng = np.random.default_rng(4)
    assert not any(somebody(rng, held_out=False).held_out for _ in range(300))
    assert all(somebody(rng, held_out=True).held_out for _ in range(100))
    assert {thing(rng, Colour.RED, held_out=False).kind for _ in range(100)} == set(KINDS)
    assert {thing(rng, Colour.RED, held_out=True).kind for _ in range(50)} == set(HELD_OUT_KINDS)


def test_shapes_move_with_their_joint():
    origin = np.array([[16, 16], [40, 16]])
    joint = Joint.of(origin, np.array([8, 8]), np.array([0, 0]))
    frames = np.zeros((2, 64, 64, 3), np.uint8)
    paint(
        frames,
        [joint.shape(ellipse(0, 0, 1, 1), (255, 0, 0)), joint.shape(box(-0.2, -0.2, 0.2, 0.2), (0, 255, 0))],
    )
    assert frames[0, 16, 16].tolist() == frames[1, 16, 40].tolist() == [0, 255, 0]
    assert frames[0, 16, 21].tolist() == [255, 0, 0]
    assert not frames[0, :, 32:].any()

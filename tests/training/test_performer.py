"""What the speaking tower is trained on: pieces of tracks, cut unit by unit."""

import pytest
import torch

from shared.models.pocket.speech.phones import SILENCE
from training.errors import TrainingError
from training.performer import blurred, crop, even_pieces, random_pieces
from training.tracks import Track


def counting_track(frames: int = 100) -> Track:
    """Every frame holds its own number, everywhere."""
    at = torch.arange(frames)
    return Track(
        picture=at.view(-1, 1, 1).float(), sound=at.view(-1, 1).float(), phones=at.clamp(max=1),
        gesture=at.view(-1, 1).float() + torch.tensor([0.0, 0.25, 0.5]),
    )  # fmt: skip


def test_a_crop_keeps_frames_together() -> None:
    track = counting_track()
    batch = crop(track, track.words(), [3, 50], 4)
    assert batch.picture.shape == (2, 4, 4, 1)
    assert batch.sound[0].flatten().tolist() == list(range(3, 19))
    assert batch.picture[1].flatten().tolist() == list(range(50, 66))
    assert batch.words.shape == (2, 4, 1)
    assert batch.gestures[0, 1].tolist() == [
        frame + part for frame in range(7, 11) for part in (0, 0.25, 0.5)
    ]


def test_a_word_slot_says_whether_its_unit_has_a_phone() -> None:
    phones = torch.full((16,), SILENCE)
    phones[7] = 5
    track = Track(
        picture=torch.zeros(16, 1, 1), sound=torch.zeros(16, 1), phones=phones, gesture=torch.zeros(16, 3)
    )
    assert crop(track, track.words(), [0], 3).words.flatten().tolist() == [0, 1, 0]


def test_pieces_of_a_step_are_always_the_same_and_of_another_step_others() -> None:
    pieces = random_pieces(counting_track(), batch=3, units=4)
    assert torch.equal(pieces(5, 0).sound, pieces(5, 0).sound)
    assert not torch.equal(pieces(5, 0).sound, pieces(6, 0).sound)
    assert not torch.equal(pieces(5, 0).sound, pieces(5, 1).sound)


def test_even_pieces_follow_each_other() -> None:
    assert even_pieces(counting_track(), 4).sound[:, 0, 0, 0].tolist() == [0, 16, 32, 48, 64, 80]


def test_a_track_shorter_than_a_piece_is_refused() -> None:
    with pytest.raises(TrainingError, match="units=25"):
        random_pieces(counting_track(), batch=1, units=25)
    with pytest.raises(TrainingError, match="units=25"):
        even_pieces(counting_track(), 25)


def test_history_is_blurred_by_so_much_at_most() -> None:
    torch.manual_seed(0)
    clean = torch.zeros(50, 4, 4, 8), torch.zeros(50, 4, 4, 8)
    levels = torch.stack([x.flatten(1).std(1) for x in blurred(clean, 0.2)])
    assert 0.15 < levels.max() < 0.22
    assert levels.min() < 0.05
    assert (levels[0] - levels[1]).abs().max() > 0.1  # each stream has its own

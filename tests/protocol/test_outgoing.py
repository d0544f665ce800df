"""What a slow client loses, and in which order."""

import pytest

from protocol.media import MediaFlags, MediaKind, MediaUnit
from protocol.outgoing import Lost, OutgoingLimits, OutgoingQueue


def make_queue(*, window: int = 2, patience: int = 4) -> OutgoingQueue:
    return OutgoingQueue(OutgoingLimits(window=window, waiting=3, waiting_with_frames=2, patience=patience))


def unit(number: int) -> MediaUnit:
    return MediaUnit(
        kind=MediaKind.AGENT,
        unit=number,
        pts_us=number * 160_000,
        audio=b"ab",
        frames=(b"1", b"2", b"3", b"4"),
    )


def sent(queue: OutgoingQueue) -> list[MediaUnit]:
    return list(iter(queue.pop, None))


def offer(queue: OutgoingQueue, numbers: range) -> list[Lost]:
    """Offer units; returns what that cost."""
    return [lost for number in numbers if (lost := queue.offer(unit(number))) is not None]


def test_a_client_that_keeps_up_gets_every_unit_unchanged() -> None:
    queue = make_queue()
    for number in range(20):
        assert queue.offer(unit(number)) is None
        assert sent(queue) == [unit(number)]
        queue.ack(number)
    assert queue.in_flight == 0


def test_unacknowledged_units_close_the_window() -> None:
    queue = make_queue(window=2)
    offer(queue, range(3))
    assert [u.unit for u in sent(queue)] == [0, 1]
    queue.ack(0)
    assert [u.unit for u in sent(queue)] == [2]
    queue.ack(0)
    assert (queue.in_flight, len(queue)) == (2, 0)


def test_pictures_go_first_then_whole_oldest_units_and_sound_never_alone() -> None:
    queue = make_queue(window=2)
    lost = offer(queue, range(5))
    assert len(sent(queue)) == 2
    lost += offer(queue, range(5, 8))
    queue.ack(3)
    first, second = sent(queue)
    assert (first.unit, first.frames, first.audio) == (5, (), b"ab")
    assert MediaFlags.DISCONTINUITY in first.flags
    assert second == unit(6)
    queue.ack(6)
    assert sent(queue) == [unit(7)]
    assert [(each.units, each.frames) for each in lost] == [(0, 4), (1, 4), (1, 4), (0, 4), (1, 4)]
    assert not queue.too_slow


def test_a_client_that_acknowledges_nothing_is_too_slow() -> None:
    queue = make_queue(window=1, patience=4)
    queue.offer(unit(0))
    sent(queue)
    offer(queue, range(1, 7))
    assert not queue.too_slow
    queue.offer(unit(7))
    assert queue.too_slow


def test_an_ack_gives_new_patience() -> None:
    queue = make_queue(window=1, patience=4)
    queue.offer(unit(0))
    sent(queue)
    offer(queue, range(1, 7))
    queue.ack(0)
    queue.offer(unit(7))
    assert not queue.too_slow


def test_clear_voids_what_waits_and_marks_the_next_unit() -> None:
    queue = make_queue(window=4)
    offer(queue, range(3))
    queue.clear(MediaFlags.INTERRUPTED)
    assert queue.pop() is None
    queue.offer(unit(3))
    queue.offer(unit(4))
    assert [u.flags for u in sent(queue)] == [MediaFlags.INTERRUPTED, MediaFlags(0)]


def test_limits_below_one_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="patience must be at least 1, is 0"):
        OutgoingLimits(patience=0)

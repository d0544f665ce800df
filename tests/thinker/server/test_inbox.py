"""The inbox: continuous sound, latest picture, text in order, and nothing without a bound."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client import Counter

from shared.media import Media
from thinker.server.inbox import MAX_BACKLOG_UNITS, MAX_TEXTS, MAX_WAITING_CHARS, STANDING_UNITS, Inbox
from thinker.server.metrics import ServerMetrics

UNIT = 2_560
MEDIA = Media(
    unit_ms=160, fps=25, frames_per_unit=4, sample_rate=16_000, height=6, width=8,
    input_rate=16_000, input_height=6, input_width=8,
)  # fmt: skip


class Counts:
    """What the inbox has counted so far, in samples."""

    def __init__(self, metrics: ServerMetrics, value: Callable[[Counter], float]) -> None:
        self.missing = lambda: value(metrics.missing_samples)
        self.dropped = lambda: value(metrics.dropped_samples)


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


@pytest.fixture
def counts(metrics: ServerMetrics, value: Callable[[Counter], float]) -> Counts:
    return Counts(metrics, value)


@pytest.fixture
def inbox(metrics: ServerMetrics) -> Inbox:
    return Inbox(MEDIA, metrics)


def ramp(start: int, count: int) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.int64).astype(np.int16)


def samples(unit_pcm: np.ndarray) -> np.ndarray:
    return (unit_pcm * 32_768).astype(np.int16)


def missing(inbox: Inbox, counts: Counts) -> float:
    """Take a unit; how much of it was filled with silence."""
    before = counts.missing()
    inbox.take()
    return counts.missing() - before


def pictures(*values: int) -> np.ndarray:
    return np.stack([np.full((6, 8, 3), value, np.uint8) for value in values])


def shades(frames: np.ndarray) -> list[int]:
    return [int(frame[0, 0, 0]) for frame in frames]


def test_nothing_sent_is_silence_and_black(inbox: Inbox, counts: Counts) -> None:
    unit = inbox.take()
    assert unit.pcm.dtype == np.float32
    assert unit.pcm.shape == (UNIT,)
    assert not unit.pcm.any()
    assert unit.frames.shape == (4, 6, 8, 3)
    assert not unit.frames.any()
    assert (unit.texts, unit.interrupted, unit.epoch) == ((), False, 0)
    assert counts.missing() == 0, "without a microphone there is no gap"


def test_it_lacks_the_first_unit_and_whatever_would_tear_a_hole(inbox: Inbox) -> None:
    assert inbox.lacking()
    inbox.push_audio(ramp(0, 0))
    assert not inbox.lacking(), "a user without a microphone"
    inbox.push_audio(ramp(0, UNIT + 100))
    inbox.take()
    assert inbox.lacking()
    inbox.push_audio(ramp(0, UNIT - 100))
    assert not inbox.lacking()
    inbox.take()
    assert inbox.lacking()
    inbox.take()
    assert not inbox.lacking(), "it ran dry: sound may never come again"


def test_odd_packets_come_out_whole(inbox: Inbox, counts: Counts) -> None:
    sent = ramp(0, 3 * UNIT)
    for packet in np.array_split(sent, 17):
        inbox.push_audio(packet)
    taken = [inbox.take() for _ in range(3)]
    assert np.array_equal(np.concatenate([samples(unit.pcm) for unit in taken]), sent)
    assert counts.missing() == 0


def test_sound_waits_for_a_whole_unit_first(inbox: Inbox) -> None:
    inbox.push_audio(ramp(1, UNIT - 1))
    assert not inbox.take().pcm.any()
    inbox.push_audio(ramp(UNIT, 1))
    assert np.array_equal(samples(inbox.take().pcm), ramp(1, UNIT))


def test_a_gap_is_filled_and_counted(inbox: Inbox, counts: Counts) -> None:
    inbox.push_audio(ramp(1, UNIT + 1_000))
    inbox.take()
    unit = inbox.take()
    assert np.array_equal(samples(unit.pcm)[:1_000], ramp(UNIT + 1, 1_000))
    assert not unit.pcm[1_000:].any()
    assert counts.missing() == UNIT - 1_000


def test_a_dry_queue_fills_up_again_before_it_flows(inbox: Inbox, counts: Counts) -> None:
    inbox.push_audio(ramp(1, UNIT))
    inbox.take()
    assert missing(inbox, counts) == UNIT
    inbox.push_audio(ramp(1, 100))
    assert missing(inbox, counts) == UNIT
    inbox.push_audio(ramp(101, UNIT - 100))
    assert np.array_equal(samples(inbox.take().pcm), ramp(1, UNIT))


def test_a_flood_keeps_the_newest_sound(inbox: Inbox, counts: Counts) -> None:
    held = MAX_BACKLOG_UNITS * UNIT
    inbox.push_audio(ramp(0, UNIT))
    inbox.push_audio(ramp(0, 10 * UNIT))
    assert counts.dropped() == 7 * UNIT
    taken = np.concatenate([samples(inbox.take().pcm) for _ in range(MAX_BACKLOG_UNITS)])
    assert np.array_equal(taken, ramp(0, 10 * UNIT)[-held:])
    assert missing(inbox, counts) == UNIT


def test_sound_that_only_waits_is_dropped(inbox: Inbox, counts: Counts) -> None:
    inbox.push_audio(ramp(0, 3 * UNIT))  # a burst after a stalled network
    for _ in range(STANDING_UNITS):
        inbox.take()
        inbox.push_audio(ramp(0, UNIT))
    assert counts.dropped() == 2 * UNIT
    inbox.take()
    assert missing(inbox, counts) == UNIT, "the delay is gone"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ((9,), [9, 9, 9, 9]),
        ((8, 9), [8, 8, 9, 9]),
        ((7, 8, 9), [7, 8, 9, 9]),
        ((6, 7, 8, 9), [6, 7, 8, 9]),
        ((1, 2, 6, 7, 8, 9), [6, 7, 8, 9]),
    ],
)
def test_latest_pictures_fill_the_unit(inbox: Inbox, sent: tuple[int, ...], seen: list[int]) -> None:
    inbox.push_frames(pictures(*sent))
    assert shades(inbox.take().frames) == seen


def test_without_news_the_last_picture_stays(inbox: Inbox) -> None:
    sent = pictures(1, 2)
    inbox.push_frames(sent)
    sent[:] = 99  # the caller may use its buffer again
    inbox.take()
    assert shades(inbox.take().frames) == [2, 2, 2, 2]


def test_a_picture_of_another_size_is_refused(inbox: Inbox) -> None:
    with pytest.raises(ValueError, match=r"\(6, 8, 3\)"):
        inbox.push_frames(np.zeros((1, 8, 6, 3), np.uint8))


def test_text_keeps_its_order_and_has_a_bound(inbox: Inbox) -> None:
    assert all(inbox.push_text(f"line {i}") for i in range(MAX_TEXTS))
    assert not inbox.push_text("one too many")
    assert inbox.take().texts == tuple(f"line {i}" for i in range(MAX_TEXTS))
    assert inbox.take().texts == ()


def test_the_characters_that_wait_have_a_bound(inbox: Inbox) -> None:
    assert inbox.push_text("x" * (MAX_WAITING_CHARS - 10))
    assert not inbox.push_text("y" * 11)
    assert inbox.push_text("z" * 10)
    assert not inbox.push_text("z")
    assert sum(map(len, inbox.take().texts)) == MAX_WAITING_CHARS
    assert inbox.push_text("room again")


def test_an_interruption_goes_once_and_gives_earlier_text_back(inbox: Inbox) -> None:
    inbox.push_text("before")
    assert inbox.interrupt() == (1, ["before"])
    assert inbox.interrupt() == (2, [])
    inbox.push_text("after")
    unit = inbox.take()
    assert (unit.texts, unit.interrupted, unit.epoch) == (("after",), True, 2)
    unit = inbox.take()
    assert (unit.texts, unit.interrupted, unit.epoch) == ((), False, 2)


def test_a_writer_thread_loses_nothing(inbox: Inbox) -> None:
    """Push and take at once: what comes out, gaps aside, is what went in, in order."""
    sent = ramp(1, UNIT * 3)
    pushed = threading.Event()

    def push() -> None:
        for packet in np.array_split(sent, 300):
            inbox.push_audio(packet)
        pushed.set()

    writer = threading.Thread(target=push)
    writer.start()
    taken = []
    while not pushed.is_set():
        taken.append(inbox.take())
    writer.join()
    taken += [inbox.take() for _ in range(MAX_BACKLOG_UNITS)]
    got = np.concatenate([samples(unit.pcm) for unit in taken])
    got = got[got != 0]  # what was sent has no silence in it
    assert np.array_equal(got, sent[: got.size])
    assert got.size > len(sent) - UNIT

"""The jitter buffer, driven by pulls alone: no clock, no device."""

import numpy as np
import numpy.typing as npt
import pytest

from client.playout import Playout, PlayoutLimits

RATE = 16_000
UNIT_US = 160_000
UNIT = 2_560
STEP = 640  # 40 ms, one frame


def playout(**limits: int) -> Playout:
    return Playout(sample_rate=RATE, unit_us=UNIT_US, limits=PlayoutLimits(**limits))


def push(player: Playout, unit: int, level: int = 1000, frames: int = 4) -> None:
    coded = [f"{unit}.{index}".encode() for index in range(frames)]
    player.push(unit * UNIT_US, np.full(UNIT, level, np.int16), coded)


def pull(player: Playout, milliseconds: int) -> npt.NDArray[np.int16]:
    return np.concatenate([player.pull(160) for _ in range(milliseconds // 10)])


def test_nothing_is_played_before_the_first_unit_and_its_head_start() -> None:
    player = playout(head_start_ms=120)
    assert not pull(player, 500).any()
    assert player.heard_us is None
    assert player.due_frame() is None
    push(player, 0)
    assert not pull(player, 120).any()
    assert player.heard_us is None
    assert pull(player, 10)[-1] == 1000
    assert player.heard_us == 10_000
    assert player.underruns == 0


def test_units_follow_each_other_without_a_seam() -> None:
    player = playout(head_start_ms=0, most_ms=10_000)
    time = np.arange(10 * UNIT)
    sound = np.round(9000 * np.sin(time / 20)).astype(np.int16)
    for unit in range(10):
        player.push(unit * UNIT_US, sound[unit * UNIT : (unit + 1) * UNIT], [])
    heard = np.concatenate([player.pull(777) for _ in range(30)])
    assert np.array_equal(heard[100:], sound[100 : len(heard)])


def test_frames_follow_the_sound() -> None:
    player = playout(head_start_ms=0)
    push(player, 0)
    push(player, 1)
    painted = []
    for _ in range(8):
        due = player.due_frame()
        player.pull(STEP)
        painted.append(due)
    assert painted[0] is None  # nothing was heard yet
    assert [due.coded for due in painted[1:] if due] == [
        b"0.1",
        b"0.2",
        b"0.3",
        b"1.0",
        b"1.1",
        b"1.2",
        b"1.3",
    ]
    assert player.skew_ms() == {"p50": 0.0, "max": 0.0}


def test_a_painter_that_comes_late_skips_to_the_frame_that_is_heard() -> None:
    player = playout(head_start_ms=0)
    push(player, 0)
    pull(player, 130)
    due = player.due_frame()
    assert due is not None
    assert due.coded == b"0.3"
    assert due.skew_ms == pytest.approx(-10.0)
    assert player.due_frame() is None


def test_the_device_s_latency_holds_pictures_back() -> None:
    player = playout(head_start_ms=0)
    player.latency_us = 50_000
    push(player, 0)
    pull(player, 80)
    due = player.due_frame()
    assert due is not None
    assert due.coded == b"0.0"
    assert player.heard_us == 30_000


def test_running_dry_fades_out_counts_and_goes_on_where_it_stopped() -> None:
    player = playout(head_start_ms=0, refill_ms=40)
    push(player, 0, level=8000)
    heard = pull(player, 240)
    assert np.abs(np.diff(heard[200:].astype(int))).max() < 150  # no click
    assert not heard[UNIT + 100 :].any()
    assert player.underruns == 1
    pull(player, 200)
    assert player.underruns == 1
    push(player, 1, level=8000)
    assert not pull(player, 40).any()
    again = pull(player, 20)
    assert np.abs(np.diff(again.astype(int))).max() < 150
    assert again[-1] == 8000
    assert player.heard_us == 180_000


def test_a_missing_unit_is_jumped_over_with_a_fade() -> None:
    player = playout(head_start_ms=0)
    push(player, 0, level=8000)
    push(player, 4, level=-8000)
    heard = pull(player, 320)
    assert np.abs(np.diff(heard[100:].astype(int))).max() < 250
    assert player.heard_us == 5 * UNIT_US
    assert player.underruns == 0


def test_latency_cannot_grow() -> None:
    player = playout(head_start_ms=0, most_ms=640)
    for unit in range(100):
        push(player, unit)
        assert player.buffered_ms <= 640
    assert player.skipped_units == 96
    pull(player, 40)
    assert player.heard_us == 96 * UNIT_US + 40_000
    due = player.due_frame()
    assert due is not None
    assert due.coded == b"96.1"


def test_an_interruption_silences_at_once() -> None:
    player = playout(head_start_ms=0)
    for unit in range(3):
        push(player, unit, level=8000)
    pull(player, 40)
    player.flush()
    after = pull(player, 100)
    assert not after[80:].any()
    assert np.abs(np.diff(after.astype(int))).max() < 150
    assert player.buffered_ms == 0
    assert player.underruns == 0
    push(player, 9, level=4000)
    assert pull(player, 200)[-1] == 4000


def test_a_unit_without_sound_is_silence_of_its_length() -> None:
    player = playout(head_start_ms=0)
    player.push(0, np.zeros(0, np.int16), [b"a"])
    push(player, 1)
    assert not pull(player, 160).any()
    assert pull(player, 10)[-1] == 1000


def test_without_pictures_there_is_no_skew() -> None:
    player = playout(head_start_ms=0)
    push(player, 0, frames=0)
    pull(player, 40)
    assert player.due_frame() is None
    assert player.skew_ms() is None

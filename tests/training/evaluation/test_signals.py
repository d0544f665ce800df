"""Levels and spans of sound whose answer is known."""

import numpy as np
import pytest

from training.evaluation.signals import decibels, loud, seconds, within


def test_levels() -> None:
    assert decibels(np.full(2560, 0.1, np.float32)) == pytest.approx(-20.0, abs=0.01)
    assert decibels(np.zeros(2560, np.float32)) == -100.0


def test_what_is_heard_is_known_to_10_ms() -> None:
    pcm = np.zeros(16_000, np.float32)
    pcm[8000:9600] = 0.01  # −40 dBFS
    pcm[9600:] = 0.004  # −48 dBFS
    heard = loud(pcm)
    assert np.flatnonzero(heard).tolist() == list(range(50, 60))
    assert seconds(heard) == pytest.approx(0.1)


def test_spans_hold_the_windows_that_begin_in_them() -> None:
    assert np.flatnonzero(within([(0.02, 0.05), (0.08, 1.0)], 10)).tolist() == [2, 3, 4, 8, 9]

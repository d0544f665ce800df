"""Which material trains the model, which is watched while it trains, and which its evaluation judges by."""

from enum import Enum

import numpy as np

JUDGED = (
    0x6A756467  # the first number of every seed of an evaluation; those of training begin with small ones
)


class Split(Enum):
    """Who may use a piece of material. Nothing is in two of them (`tests/training/test_held_out.py`)."""

    TRAIN = "train"
    WATCH = "watch"  # the held-out figures in the logs of training
    JUDGE = "judge"

    @property
    def held_out(self) -> bool:
        """Whether no training step may use it."""
        return self is not Split.TRAIN


def judging_rng(*seed: int) -> np.random.Generator:
    """A generator that no training run draws from."""
    return np.random.default_rng((JUDGED, *seed))

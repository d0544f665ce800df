"""How far the agent's mouth opens, against the drawn face saying the same phones at the same time."""

import numpy as np
from numpy.typing import NDArray

from training.data.faces.face import LIP, MOUTH, draw
from training.data.faces.motion import poses

LAGS = range(-6, 7)  # frames
# The middle of the mouth (rows, columns in shares of the picture): nothing dark but the mouth gets there.
MOUTH_ROWS, MOUTH_COLUMNS = (0.55, 0.72), (0.41, 0.59)

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
"""(made, expected), one value a frame."""


def opening(frame: NDArray[np.uint8]) -> float:
    """How much of the inside of the mouth shows in a frame [H, W, 3]: dark pixels, as a share of the box."""
    height, width = frame.shape[:2]
    rows = slice(round(MOUTH_ROWS[0] * height), round(MOUTH_ROWS[1] * height))
    columns = slice(round(MOUTH_COLUMNS[0] * width), round(MOUTH_COLUMNS[1] * width))
    red = frame[rows, columns, 0].astype(np.float64)  # what tells the mouth from lips, skin, teeth and tongue
    return float(np.clip((LIP[0] - red) / (LIP[0] - MOUTH[0]), 0, 1).mean())


def drawn_openings(phones: list[tuple[str, float]], num_frames: int, size: int) -> NDArray[np.float64]:
    """The mouth of the drawn face, given (phone, end in seconds) in order of time."""
    chosen = poses(phones, num_frames, np.random.default_rng(0))
    return np.array([opening(draw(pose, size)) for pose in chosen])


def lip_sync(pairs: list[Pair]) -> dict[str, float]:
    """Correlation of made and expected, at no lag and at the best lag.

    A positive best lag (in frames of 40 ms) means that the agent's lips are late.
    """
    at = {lag: correlation(pairs, lag) for lag in LAGS}
    best = max(at, key=lambda lag: at[lag])
    return {"lip_correlation": at[0], "lip_correlation_best": at[best], "lip_best_lag_frames": float(best)}


def correlation(pairs: list[Pair], lag: int) -> float:
    """Of all pairs put together, with `made` taken `lag` frames later; 0 if one is flat."""
    late, early = max(lag, 0), max(-lag, 0)
    made = np.concatenate([x[late : len(x) - early] for x, _ in pairs])
    expected = np.concatenate([y[early : len(y) - late] for _, y in pairs])
    if min(made.std(), expected.std()) < 1e-9:
        return 0.0
    return float(np.corrcoef(made, expected)[0, 1])

"""How the agent's face moves: lips from phones, and the small idle movements of somebody who is awake."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.face import Pose

RATE = 100  # steps a second at which movements are laid out before they are sampled at 25 fps
STEP_FRAME = RATE // 25
LIP_SMOOTH_S = 0.035  # standard deviation; about 110 ms from end to end
LIP_LEAD_S = 0.04  # lips move before the sound

#           open wide round teeth tongue
LIPS = {
    "pau": (0.0, 0.1, 0.0, 0.0, 0.0),
    "aa": (1.0, 0.1, 0.0, 0.2, 0.3), "ae": (0.8, 0.6, 0.0, 0.6, 0.4), "ah": (0.6, 0.2, 0.0, 0.3, 0.2),
    "ao": (0.8, 0.0, 0.6, 0.0, 0.2), "aw": (0.9, 0.0, 0.4, 0.1, 0.2), "ax": (0.4, 0.2, 0.0, 0.4, 0.2),
    "ay": (0.8, 0.5, 0.0, 0.5, 0.3), "eh": (0.6, 0.6, 0.0, 0.6, 0.4), "er": (0.4, 0.0, 0.5, 0.3, 0.3),
    "ey": (0.5, 0.8, 0.0, 0.7, 0.3), "ih": (0.4, 0.6, 0.0, 0.7, 0.3), "iy": (0.3, 1.0, 0.0, 0.9, 0.2),
    "ow": (0.6, 0.0, 0.9, 0.0, 0.1), "oy": (0.6, 0.2, 0.8, 0.1, 0.2), "uh": (0.4, 0.0, 0.7, 0.1, 0.2),
    "uw": (0.3, 0.0, 1.0, 0.0, 0.1),
    "b": (-0.08, 0.2, 0.0, 0.0, 0.0), "p": (-0.08, 0.2, 0.0, 0.0, 0.0), "m": (-0.08, 0.2, 0.0, 0.0, 0.0),
    "f": (0.12, 0.3, 0.0, 0.9, 0.0), "v": (0.14, 0.3, 0.0, 0.9, 0.0),
    "th": (0.3, 0.4, 0.0, 0.7, 0.9), "dh": (0.3, 0.4, 0.0, 0.7, 0.9),
    "s": (0.18, 0.8, 0.0, 1.0, 0.0), "z": (0.2, 0.8, 0.0, 1.0, 0.0), "sh": (0.25, 0.0, 0.7, 0.9, 0.0),
    "zh": (0.25, 0.0, 0.7, 0.9, 0.0), "ch": (0.25, 0.0, 0.6, 0.9, 0.0), "jh": (0.25, 0.0, 0.6, 0.9, 0.0),
    "d": (0.3, 0.5, 0.0, 0.7, 0.5), "t": (0.25, 0.5, 0.0, 0.8, 0.4), "n": (0.28, 0.5, 0.0, 0.6, 0.5),
    "l": (0.4, 0.4, 0.0, 0.5, 0.9), "r": (0.3, 0.0, 0.6, 0.3, 0.3), "w": (0.2, 0.0, 1.0, 0.0, 0.0),
    "y": (0.25, 0.8, 0.0, 0.7, 0.3), "k": (0.35, 0.4, 0.0, 0.4, 0.2), "g": (0.35, 0.4, 0.0, 0.4, 0.2),
    "ng": (0.35, 0.4, 0.0, 0.4, 0.3), "hh": (0.4, 0.3, 0.0, 0.3, 0.2),
}  # fmt: skip

BLINK_SHAPE = np.interp(np.arange(0, 0.26, 1 / RATE), [0, 0.07, 0.12, 0.26], [0, 1, 1, 0])


def poses(phones: list[tuple[str, float]], num_frames: int, rng: np.random.Generator) -> list[Pose]:
    """One pose for each of `num_frames` frames, given (phone, end in seconds) in order of time."""
    steps = num_frames * STEP_FRAME + RATE
    lips = _lips(phones, steps)
    talking = _smooth((lips[:, 0] > 0.05).astype(float), 0.3)
    blink = _blinks(steps, rng)
    gaze = _gaze(steps, rng)
    head_x = _wander(steps, 0.9, rng) * (0.35 + 0.4 * talking)
    head_y = _wander(steps, 0.7, rng) * (0.3 + 0.5 * talking)
    brow = np.clip(_wander(steps, 0.5, rng), 0, 1.5) * (0.15 + 0.6 * talking)
    breath = np.sin(2 * np.pi * (0.26 * np.arange(steps) / RATE + rng.uniform()))
    lead = round(LIP_LEAD_S * RATE) + STEP_FRAME // 2
    at = np.arange(num_frames) * STEP_FRAME
    rows = np.column_stack([
        np.clip(lips[at + lead], 0, 1), np.clip(blink, 0, 1)[at], np.clip(gaze, -1, 1)[at],
        np.clip(brow, 0, 1)[at], np.clip(head_x, -1, 1)[at], np.clip(head_y, -1, 1)[at], breath[at],
    ])  # fmt: skip
    return [Pose(**dict(zip(Pose.__dataclass_fields__, row.tolist(), strict=True))) for row in rows]


def _smooth(track: NDArray[np.float64], sigma_s: float) -> NDArray[np.float64]:
    half = int(3 * sigma_s * RATE)
    kernel = np.exp(-0.5 * (np.arange(-half, half + 1) / (sigma_s * RATE)) ** 2)
    padded = np.pad(track, [(half, half)] + [(0, 0)] * (track.ndim - 1), mode="edge")
    columns = padded.reshape(len(padded), -1).T
    smooth = [np.convolve(column, kernel / kernel.sum(), mode="valid") for column in columns]
    return np.stack(smooth, axis=1).reshape(track.shape)


def _lips(phones: list[tuple[str, float]], steps: int) -> NDArray[np.float64]:
    track = np.tile(np.array(LIPS["pau"]), (steps, 1))
    start = 0
    for phone, end_s in phones:
        end = round(end_s * RATE)
        track[start:end] = LIPS[phone]
        start = end
    return _smooth(track, LIP_SMOOTH_S)


def _blinks(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    track = np.zeros(steps + len(BLINK_SHAPE))
    at = int(rng.uniform(0.2, 4) * RATE)
    while at < steps:
        track[at : at + len(BLINK_SHAPE)] = BLINK_SHAPE
        at += int(rng.uniform(1.5, 5) * RATE)
    return track[:steps]


def _gaze(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    track = np.zeros((steps, 2))
    at = 0
    while at < steps:
        stay = int(rng.uniform(0.6, 3.0) * RATE)
        if rng.uniform() > 0.6:
            track[at : at + stay] = rng.uniform(-0.8, 0.8, 2)
            stay = int(stay * 0.5)
            track[at + stay :] = 0
        at += stay
    return _smooth(track, 0.02)


def _wander(steps: int, rate_hz: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Slow noise of about unit deviation."""
    sigma = 0.25 / rate_hz
    slow = _smooth(rng.standard_normal(steps), sigma)
    return slow * float(np.sqrt(2 * np.sqrt(np.pi) * sigma * RATE))

"""How the agent's face moves: lips from phones, and the small idle movements of somebody who is awake."""

import numpy as np
from numpy.typing import NDArray

from training.data.faces.face import Pose

RATE = 100  # steps a second at which movements are laid out before they are sampled at 25 fps
FPS = 25
STEP_FRAME = RATE // FPS
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
# A nod at 25 frames a second, down and up within 0.48 s; the frames before and after it are 0.
NOD_SHAPE = np.sin(np.pi * np.arange(1, 12) / 12) ** 2
NOD_EVERY_S = (1.0, 6.0)  # from the end of a nod, or of two in a row, to the next
NOD_TWICE, NOD_DEPTH = 0.35, (0.7, 1.0)

IDLE_S, FOLLOWING_S = (2.0, 9.0), (4.0, 14.0)  # how long each kind of gaze lasts at a time
GLIDE, GLIDE_S, HOLD_S = 0.5, (0.4, 2.5), (0.2, 3.5)


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
        _nods(num_frames, rng),
    ])  # fmt: skip
    return [Pose(**dict(zip(Pose.__dataclass_fields__, row.tolist(), strict=True))) for row in rows]


def gestures(chosen: list[Pose]) -> NDArray[np.float32]:
    """What of F poses is a gesture: (gaze_x, gaze_y, nod) of each frame, [F, 3]."""
    return np.array([(p.gaze_x, p.gaze_y, p.nod) for p in chosen], np.float32).reshape(-1, 3)


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


def _nods(num_frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Nods whether or not anything is said, about one in 4 s: [num_frames]."""
    track = np.zeros(num_frames + 2 * len(NOD_SHAPE))
    at = int(rng.uniform(0, NOD_EVERY_S[1]) * FPS)
    while at < num_frames:
        for _ in range(2 if rng.uniform() < NOD_TWICE else 1):
            track[at : at + len(NOD_SHAPE)] = rng.uniform(*NOD_DEPTH) * NOD_SHAPE
            at += len(NOD_SHAPE)
        at += int(rng.uniform(*NOD_EVERY_S) * FPS)
    return track[:num_frames]


def _gaze(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Now idle glances, now following somebody who moves: (x, y) of each step."""
    pieces: list[NDArray[np.float64]] = []
    made, following = 0, rng.uniform() < 0.5
    while made < steps:
        length = int(rng.uniform(*(FOLLOWING_S if following else IDLE_S)) * RATE)
        pieces.append(_follow(length, rng) if following else _glance(length, rng))
        made, following = made + length, not following
    return _smooth(np.concatenate(pieces)[:steps], 0.02)


def _glance(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Straight ahead, and now and then a look elsewhere and back."""
    track = np.zeros((steps, 2))
    at = 0
    while at < steps:
        stay = int(rng.uniform(0.6, 3.0) * RATE)
        if rng.uniform() > 0.6:
            stay //= 2
            track[at : at + stay] = rng.uniform(-0.8, 0.8, 2)
        at += stay
    return track


def _follow(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """From place to place all over the range, in jumps and in smooth pursuit, and long looks at each."""
    pieces: list[NDArray[np.float64]] = []
    here, made = rng.uniform(-1, 1, 2), 0
    while made < steps:
        # A little over the range, so that its ends are as common as the rest.
        there = np.clip(rng.uniform(-1.1, 1.1, 2), -1, 1)
        glide = int(rng.uniform(*GLIDE_S) * RATE) if rng.uniform() < GLIDE else 0
        share = (1 - np.cos(np.pi * np.arange(glide) / max(1, glide)))[:, None] / 2
        hold = np.tile(there, (int(rng.uniform(*HOLD_S) * RATE), 1))
        pieces += [here + share * (there - here), hold]
        here, made = there, made + glide + len(hold)
    return np.concatenate(pieces)[:steps]


def _wander(steps: int, rate_hz: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Slow noise of about unit deviation."""
    sigma = 0.25 / rate_hz
    slow = _smooth(rng.standard_normal(steps), sigma)
    return slow * float(np.sqrt(2 * np.sqrt(np.pi) * sigma * RATE))

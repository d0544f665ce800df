"""How drawn users move: where their faces go, and where their hands hold things.

Shape suffixes: T frames. Positions are pixels, x right and y down.
"""

import numpy as np

from training.data.vision.person import Moves
from training.data.vision.shapes import SIZE, Floats, floats

RATE = 25
HIDDEN = 90.0  # pixels below its place at which a hand waits before it is raised


def ease(start: float, length: float, num_frames: int) -> Floats:
    """0 before `start`, 1 after `start` + `length` (frames), smooth between; [T]."""
    share = np.clip((np.arange(num_frames, dtype=np.float32) - start) / length, 0, 1)
    return np.asarray(share * share * (3 - 2 * share), np.float32)


def stroll(rng: np.random.Generator, num_frames: int, radius: float) -> Floats:
    """A path of the face [T, 2]: it stays, drifts or steps to other places; some come or go."""
    time_T1 = np.arange(num_frames, dtype=np.float32)[:, None] / RATE
    path = np.tile(_spot(rng), (num_frames, 1))
    path += rng.uniform(0, 4, 2) * np.sin(rng.uniform(0.3, 4, 2) * time_T1 + rng.uniform(0, 6, 2))
    if rng.uniform() < 0.5:
        at = 0.0
        while (at := at + rng.exponential(1.5) * RATE) < num_frames:
            path += ease(at, rng.uniform(6, 30), num_frames)[:, None] * (_spot(rng) - path)
    if rng.uniform() < 0.2:
        away = 32 + rng.choice([-1, 1]) * (34 + 3 * radius)
        gone_T = ease(rng.uniform(-5, num_frames), rng.uniform(10, 25), num_frames)
        gone_T = gone_T if rng.uniform() < 0.5 else 1 - gone_T
        path[:, 0] += gone_T * (away - path[:, 0])
    return path.astype(np.float32)


def _spot(rng: np.random.Generator) -> Floats:
    """Mostly near the middle, a little high; now and then anywhere."""
    spot = rng.normal((32, 27), (12, 8)) if rng.uniform() < 0.7 else rng.uniform((2, 6), (62, 58))
    return np.clip(spot, (2, 6), (62, 58)).astype(np.float32)


def moves(rng: np.random.Generator, face_T2: Floats, radius: float) -> Moves:
    """Leaning, turning, talking, blinking and coming nearer, on the given path."""
    num_frames = len(face_T2)
    time_T = np.arange(num_frames, dtype=np.float32) / RATE
    slow_3T = np.sin(rng.uniform(0.3, 2.5, (3, 1)) * time_T + rng.uniform(0, 6, (3, 1)))
    lean, turn = rng.normal(0, (0.1, 0.35))
    phrase_T = (np.sin(rng.uniform(1, 4) * time_T + rng.uniform(0, 6)) > -0.3) * (rng.uniform() < 0.5)
    every, late = int(rng.integers(40, 120)), rng.integers(90)
    return Moves(
        face_T2=face_T2,
        radius_T=(radius * (1 + rng.uniform(0, 0.08) * slow_3T[0])).astype(np.float32),
        roll_T=(lean + 0.1 * slow_3T[1]).astype(np.float32),
        turn_T=np.clip(turn + 0.4 * slow_3T[2], -1, 1).astype(np.float32),
        mouth_T=(phrase_T * np.abs(np.sin(rng.uniform(8, 16) * time_T))).astype(np.float32),
        blink_T=((np.arange(num_frames) + late) % every < 4).astype(np.float32),
    )


def raised(rng: np.random.Generator, num_frames: int) -> Floats:
    """How far a hand is below its place, in pixels [T]: held, or raised or lowered on the way."""
    up_T = np.ones(num_frames, np.float32)
    if rng.uniform() < 0.4:
        up_T *= ease(rng.uniform(-10, num_frames * 0.6), rng.uniform(6, 16), num_frames)
    if rng.uniform() < 0.3:
        up_T *= 1 - ease(rng.uniform(num_frames * 0.4, num_frames), rng.uniform(6, 16), num_frames)
    return np.asarray((1 - up_T) * np.float32(HIDDEN), np.float32)


def beside(
    rng: np.random.Generator, face_T2: Floats | None, radius: float, half: float, num_frames: int
) -> Floats:
    """Where a thing is held [T, 2]: before the chest or beside the face, else low in the middle."""
    wobble_T = rng.uniform(0, 1.5) * np.sin(rng.uniform(0.5, 5) * np.arange(num_frames) / RATE)
    if face_T2 is None:
        near = np.tile(floats(rng.uniform((14, 24), (50, 52)).tolist()), (num_frames, 1))
        return (near + wobble_T[:, None]).astype(np.float32)
    apart = 0.85 * radius + half
    across, down = rng.uniform(-0.9, 0.9) * radius, rng.uniform(-0.3, 0.8) * radius
    ways = rng.permutation([(across, apart + rng.uniform(0.1, 0.5) * radius), (-apart, down), (apart, down)])
    inner = np.clip(face_T2, 0, SIZE)  # a thing goes out of the picture with who holds it
    usual = np.median(inner, axis=0)
    overhang = [np.abs(np.clip(usual + way, half, SIZE - half) - usual - way).sum() for way in ways]
    near = np.clip(inner + ways[int(np.argmin(overhang))], half * 0.8, SIZE - half * 0.8)
    return np.asarray(near + 1.5 * (face_T2 - inner) + wobble_T[:, None], np.float32)

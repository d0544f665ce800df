"""Light on a scene and what a cheap camera makes of it.

Shape suffixes: T frames, H W picture, C colours.
"""

import cv2
import numpy as np

from training.data.vision.paints import nameable
from training.data.vision.shapes import SIZE, Floats, Picture, Rgb, floats
from training.data.vision.thing import Thing

TRIES = 30
GRAIN_EDGE = 8  # pixels by which one sheet of noise is larger than the picture that is cut from it


def light(rng: np.random.Generator, what: Thing | None) -> Floats:
    """Factors [64, 64, 3] of a light in which a held-up thing keeps the name of its colour."""
    way = np.linspace(-1, 1, SIZE, dtype=np.float32)
    fall = 1 + rng.uniform(-0.2, 0.2) * way + rng.uniform(-0.12, 0.12) * way[:, None]
    fall -= rng.uniform(0, 0.1) * (way**2 + way[:, None] ** 2)
    # Nothing real is as even as a drawing: shadows and folds, softly.
    fold = rng.standard_normal((7, 7), np.float32) * np.float32(rng.uniform(0, 0.07))
    fall += cv2.resize(fold, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    return np.asarray(fall[..., None] * floats(_gain(rng, what)), np.float32)


def _gain(rng: np.random.Generator, what: Thing | None) -> Rgb:
    for _ in range(TRIES):
        bright = rng.uniform(0.4, 1.4) if rng.uniform() < 0.5 else rng.uniform(0.8, 1.1)
        warm, tint = rng.uniform(-0.16, 0.16), rng.uniform(-0.05, 0.05)
        red, green, blue = bright * (1 + warm), bright * (1 - tint), bright * (1 - warm)
        if what is None:
            return red, green, blue
        if nameable(what.name, (what.paint[0] * red, what.paint[1] * green, what.paint[2] * blue)):
            return red, green, blue
    return 1.0, 1.0, 1.0


def shoot(rng: np.random.Generator, frames_THWC: Picture, light_HWC: Floats) -> None:
    """Light the frames [T, 64, 64, 3], blur them, add noise and compress them, in place."""
    num_frames = len(frames_THWC)
    grain_HWC, exposure_T = _grain(rng), _exposure(rng, num_frames)
    spots_T2 = rng.integers(0, GRAIN_EDGE + 1, (num_frames, 2))
    sigma = rng.uniform(0.45, 1.2) if rng.uniform() < 0.45 else 0.0
    quality = int(rng.integers(30, 91)) if rng.uniform() < 0.35 else 0
    for frame, exposure, (x, y) in zip(frames_THWC, exposure_T.tolist(), spots_T2.tolist(), strict=True):
        cv2.multiply(frame, light_HWC, frame, exposure, cv2.CV_8U)
        if sigma:
            cv2.GaussianBlur(frame, (5, 5), sigma, frame)
        cv2.add(frame, grain_HWC[y : y + SIZE, x : x + SIZE], frame, None, cv2.CV_8U)
        if quality:
            coded = cv2.imencode(".jpg", frame, (cv2.IMWRITE_JPEG_QUALITY, quality))[1]
            frame[:] = cv2.imdecode(coded, cv2.IMREAD_COLOR)


def _grain(rng: np.random.Generator) -> Floats:
    size = SIZE + GRAIN_EDGE
    grain = rng.standard_normal((size, size, 3), np.float32)
    if rng.uniform() < 0.4:  # coarse and nearly grey, as after a camera's own filter
        grain = np.asarray(cv2.GaussianBlur(grain, (3, 3), 0), np.float32)
        grain = 1.4 * grain.mean(axis=2, keepdims=True) + 1.2 * grain
    return np.asarray(grain * np.float32(8 * rng.uniform() ** 2), np.float32)


def _exposure(rng: np.random.Generator, num_frames: int) -> Floats:
    """A camera that corrects its exposure now and then."""
    if rng.uniform() < 0.7:
        return np.ones(num_frames, np.float32)
    at, length = rng.uniform(0, num_frames), rng.uniform(1, 4)
    step_T = 1 / (1 + np.exp(np.clip(-(np.arange(num_frames) - at) / length, -30, 30)))
    return np.asarray(1 + rng.uniform(-0.15, 0.15) * step_T, np.float32)

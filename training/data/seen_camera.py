"""Light on a scene and what a cheap camera makes of it.

Shape suffixes: T frames, H W picture, C colours.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.seen_shapes import SIZE, Floats, Rgb
from training.data.seen_thing import Thing, nameable

TRIES = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Light:
    """How bright and in which colour a scene is lit: a factor for each colour, and how it falls off."""

    gain: Rgb
    slope: tuple[float, float]
    vignette: float

    def map_HWC(self) -> Floats:
        """The factor at each pixel, [64, 64, 3]."""
        way = np.linspace(-1, 1, SIZE, dtype=np.float32)
        fall = 1 + self.slope[0] * way + self.slope[1] * way[:, None]
        fall -= self.vignette * (way**2 + way[:, None] ** 2)
        return np.asarray(fall[..., None] * np.float32(self.gain), np.float32)


def light(rng: np.random.Generator, what: Thing | None) -> Light:
    """Draw a light in which a held-up thing keeps the name of its colour."""
    for _ in range(TRIES):
        bright = rng.uniform(0.4, 1.4) if rng.uniform() < 0.6 else rng.uniform(0.8, 1.1)
        warm, tint = rng.uniform(-0.16, 0.16), rng.uniform(-0.05, 0.05)
        gain = (bright * (1 + warm), bright * (1 - tint), bright * (1 - warm))
        paint = what.paint if what else (0.0, 0.0, 0.0)
        seen = (paint[0] * gain[0], paint[1] * gain[1], paint[2] * gain[2])
        if what is None or nameable(what.name, seen):
            break
    else:
        gain = (1.0, 1.0, 1.0)
    return Light(
        gain=gain, slope=(rng.uniform(-0.25, 0.25), rng.uniform(-0.15, 0.15)), vignette=rng.uniform(0, 0.12)
    )


def shoot(rng: np.random.Generator, frames_THWC: NDArray[np.uint8], lit: Light) -> None:
    """Light the frames [T, 64, 64, 3], blur them, add noise and compress them, in place."""
    num_frames = len(frames_THWC)
    light_HWC, exposure_T = lit.map_HWC(), _exposure(rng, num_frames)
    edge = 8
    grain = rng.standard_normal((SIZE + edge, SIZE + edge, 3), np.float32)
    if rng.uniform() < 0.4:  # coarse and grey, as after a camera's own noise filter
        grain = cv2.GaussianBlur(grain, (3, 3), 0) * 2
        grain = 0.7 * grain.mean(axis=2, keepdims=True) + 0.6 * grain
    grain *= np.float32(8 * rng.uniform() ** 2)
    shifts_T2 = rng.integers(0, edge + 1, (num_frames, 2))
    sigma = rng.uniform(0.45, 1.2) if rng.uniform() < 0.45 else 0.0
    quality = int(rng.integers(30, 91)) if rng.uniform() < 0.35 else 0
    for frame, exposure, (x, y) in zip(frames_THWC, exposure_T.tolist(), shifts_T2.tolist(), strict=True):
        cv2.multiply(frame, light_HWC, frame, exposure, cv2.CV_8U)
        if sigma:
            cv2.GaussianBlur(frame, (5, 5), sigma, frame)
        cv2.add(frame, grain[y : y + SIZE, x : x + SIZE], frame, None, cv2.CV_8U)
        if quality:
            coded = cv2.imencode(".jpg", frame, (cv2.IMWRITE_JPEG_QUALITY, quality))[1]
            frame[:] = cv2.imdecode(coded, cv2.IMREAD_COLOR)


def _exposure(rng: np.random.Generator, num_frames: int) -> Floats:
    """A camera that corrects its exposure now and then."""
    if rng.uniform() < 0.7:
        return np.ones(num_frames, np.float32)
    at, length = rng.uniform(0, num_frames), rng.uniform(2, 15)
    step = 1 / (1 + np.exp(-(np.arange(num_frames) - at) / length * 4))
    return np.asarray(1 + rng.uniform(-0.15, 0.15) * step, np.float32)

"""A recorded session of the real pair: does its last minute look and sound like its first?"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.evaluation.signals import FLOOR_DB, RATE, WINDOW, decibels, loud, read_sound, seconds

MINUTE_S = 60.0
# Boxes (top, bottom, left, right) in shares of the picture where nothing but skin, or wall, is seen.
CHEEKS, WALL = (0.5, 0.59, 0.3, 0.7), (0.02, 0.14, 0.02, 0.14)
SAME = 0.2  # mean difference of two pictures of 0 to 255, below which they are the same: half a breath is 0.6
PAUSE_WINDOWS = 50  # half a second: an unbroken stretch of sound has no such pause


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One measure in the first and in the last minute."""

    what: str
    unit: str
    first: float
    last: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftReport:
    """What changed within a session, and what holds for the whole of it."""

    rows: list[Drift]
    whole: dict[str, float]

    def content(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "name": "session",
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "whole": self.whole,
        }


def compare(recording: Path, report: Path | None) -> DriftReport:
    """Read a recording of the agent (`live --record`) and the report of its session.

    Raises:
        TrainingError: a file is not there or not what it should be, or the recording is under two minutes.
    """
    try:
        sound = read_sound(recording)
        pictures = _pictures(recording)
    except (OSError, av.error.FFmpegError) as error:
        raise TrainingError(f"--recording {recording}: {error}") from None
    if len(sound) < 2 * MINUTE_S * RATE:
        raise TrainingError(
            f"--recording {recording}: two minutes are needed, it has {len(sound) / RATE:.0f} s"
        )
    rows = [*_sound_drift(sound), *_picture_drift(pictures)]
    whole = {
        "longest frozen stretch (s)": pictures.frozen_s,
        "longest stretch of sound (s)": _unbroken_s(sound),
    }
    return DriftReport(rows=rows, whole=whole | ({} if report is None else _reported(report, sound)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pictures:
    """Of each frame: its time in seconds [F], the mean colour of cheeks and wall [F, 3]."""

    times: NDArray[np.float64]
    cheeks: NDArray[np.float64]
    wall: NDArray[np.float64]
    frozen_s: float


def _frames(path: Path) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    with av.open(str(path)) as file:
        for frame in file.decode(video=0):
            yield float(frame.time or 0.0), np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _pictures(path: Path) -> _Pictures:
    times, cheeks, wall = [], [], []
    kept: NDArray[np.int16] | None = None  # the picture that all since `since` are the same as
    since = frozen_s = 0.0
    for time, frame in _frames(path):
        times.append(time)
        cheeks.append(_mean_colour(frame, CHEEKS))
        wall.append(_mean_colour(frame, WALL))
        picture = frame.astype(np.int16)
        if kept is None or np.abs(picture - kept).mean() > SAME:
            kept, since = picture, time
        frozen_s = max(frozen_s, time - since)
    return _Pictures(
        times=np.array(times), cheeks=np.array(cheeks), wall=np.array(wall), frozen_s=frozen_s
    )  # fmt: skip


def _mean_colour(frame: NDArray[np.uint8], box: tuple[float, float, float, float]) -> NDArray[np.float64]:
    height, width = frame.shape[:2]
    top, bottom, left, right = box
    rows = slice(round(top * height), round(bottom * height))
    return np.asarray(frame[rows, round(left * width) : round(right * width)].mean((0, 1)))


def _sound_drift(sound: NDArray[np.float32]) -> Iterator[Drift]:
    minute = int(MINUTE_S * RATE)
    first, last = sound[:minute], sound[-minute:]
    for what, unit, measure in (
        ("level of speech", "dBFS", _level_of_speech),
        ("level of silence", "dBFS", _level_of_silence),
        ("share of speaking", "%", lambda pcm: 100 * seconds(loud(pcm)) / MINUTE_S),
    ):
        yield Drift(what=what, unit=unit, first=measure(first), last=measure(last))


def _level_of_speech(pcm: NDArray[np.float32]) -> float:
    return _level(pcm, loud(pcm))


def _level_of_silence(pcm: NDArray[np.float32]) -> float:
    return _level(pcm, ~loud(pcm))


def _level(pcm: NDArray[np.float32], windows: NDArray[np.bool_]) -> float:
    chosen = pcm[: len(windows) * WINDOW].reshape(-1, WINDOW)[windows]
    return decibels(chosen) if len(chosen) else FLOOR_DB


def _picture_drift(pictures: _Pictures) -> Iterator[Drift]:
    first = pictures.times < MINUTE_S
    last = pictures.times >= pictures.times[-1] - MINUTE_S
    for what, colours in (("face", pictures.cheeks), ("wall", pictures.wall)):
        for channel, name in enumerate(("red", "green", "blue")):
            column = colours[:, channel]
            yield Drift(
                what=f"{what}, {name}", unit="of 255", first=float(column[first].mean()),
                last=float(column[last].mean()),
            )  # fmt: skip


def _unbroken_s(sound: NDArray[np.float32]) -> float:
    """The longest time in which the agent made no pause of half a second: whoever babbles makes none."""
    at = np.flatnonzero(loud(sound))
    if not len(at):
        return 0.0
    pieces = np.split(at, np.flatnonzero(np.diff(at) > PAUSE_WINDOWS) + 1)
    return max(float(piece[-1] - piece[0] + 1) for piece in pieces) * WINDOW / RATE


def _reported(path: Path, sound: NDArray[np.float32]) -> dict[str, float]:
    """What the session's own report adds: sync, what was lost, and how much sound there is for its words."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        client, words = report["client"], len(report["text"].split())
        skew = report["av_skew_ms"]
        return {
            "A/V skew p50 (ms)": float(skew["p50"]),
            "A/V skew max (ms)": float(skew["max"]),
            "units that never came": float(client["gaps"]),
            "times the sound ran dry": float(client["underruns"]),
            "words said": float(words),
            "sound for each word said (s)": seconds(loud(sound)) / max(1, words),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"--report {path}: not the report of a session with a client ({error})") from None

"""All measures: what they are, their goals, and the bars that the shipped weights must not fall below."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a value must be: at least `low`, at most `high`."""

    low: float = -math.inf
    high: float = math.inf

    def hold(self, value: float) -> bool:
        """Whether a value is within; nothing measured (NaN) is not."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            text = f"≥ {self.low:g}"
        elif math.isinf(self.low):
            text = f"≤ {self.high:g}"
        else:
            text = f"{self.low:g} to {self.high:g}"
        return text.replace("-", "−")


@dataclass(frozen=True, slots=True)
class Measure:
    """One row. `goal` is that of the level; `gate` is for the short form with the shipped weights."""

    level: int
    name: str
    what: str
    unit: str = ""
    _: KW_ONLY
    goal: Bounds | None = None
    gate: Bounds | None = None


def at_least(low: float) -> Bounds:
    """No less."""
    return Bounds(low=low)


def at_most(high: float) -> Bounds:
    """No more."""
    return Bounds(high=high)


MEASURES = (
    Measure(0, "psnr", "video codec, whole picture", "dB", goal=at_least(30), gate=at_least(30)),
    Measure(0, "psnr_mouth", "video codec, mouth", "dB", goal=at_least(27), gate=at_least(29)),
    Measure(0, "psnr_eyes", "video codec, eyes", "dB"),
    Measure(0, "silence_before_dbfs", "level before a line is typed", "dBFS",
            goal=at_most(-50), gate=at_most(-60)),
    Measure(0, "silence_after_dbfs", "level after each line", "dBFS", goal=at_most(-50), gate=at_most(-60)),
    Measure(0, "silence_loudest_unit_dbfs", "level of the loudest silent unit", "dBFS"),
    Measure(1, "forced_wer_over_original", "words wrong with forced slots, minus the original's", "points",
            goal=at_most(10), gate=at_most(10)),
    Measure(1, "forced_wer", "words wrong with forced slots", "%"),
    Measure(1, "lip_correlation", "lip opening against the drawn face, correlation",
            goal=at_least(0.8), gate=at_least(0.85)),
    Measure(1, "lip_correlation_best", "the same at the best lag"),
    Measure(1, "lip_best_lag_frames", "best lag of the lips (positive: late)", "frames",
            goal=Bounds(low=-1, high=1)),
    Measure(2, "wer_over_original", "words wrong in typed lines, minus the original's", "points",
            goal=at_most(15), gate=at_most(10)),
    Measure(2, "wer", "words wrong in typed lines", "%"),
    Measure(2, "wer_small_talk", "of these, small talk", "%"),
    Measure(2, "wer_prose", "of these, prose", "%"),
    Measure(2, "wer_original", "words wrong, the voice it learned from", "%"),
    Measure(2, "wer_codec", "words wrong, that voice through the codec", "%"),
    Measure(3, "requests", "requests by unseen voices of espeak-ng and flite, with noise, gain, room"),
    Measure(3, "requests_right", "right answer", "%", goal=at_least(95), gate=at_least(70)),
    Measure(3, "requests_right_espeak", "of these, espeak-ng's voices", "%"),
    Measure(3, "requests_right_flite", "of these, flite's voices", "%"),
    Measure(3, "requests_wrong", "answered as another request", "%"),
    Measure(3, "requests_missed", "not answered", "%"),
    Measure(3, "requests_twice", "answers too many", "%"),
    Measure(3, "requests_right_festival", "right answer to Festival's voices, where it is installed", "%"),
    Measure(3, "requests_right_kokoro", "right answer to Kokoro's voices, where it is installed", "%"),
    Measure(3, "requests_right_piper", "right answer to Piper's voice, where it is installed", "%"),
    Measure(3, "other_minutes", "noise, music, other sentences", "min"),
    Measure(3, "false_starts", "false starts on these", "per 5 min", goal=at_most(1), gate=at_most(6.5)),
    Measure(3, "false_starts_noise", "false starts on noise alone", "per 5 min"),
    Measure(3, "false_starts_music", "false starts on music alone", "per 5 min"),
    Measure(3, "false_starts_sentences", "false starts on other sentences alone", "per 5 min"),
    Measure(4, "answer_ms_p50", "end of speech → first sound, p50", "ms", goal=at_most(480)),
    Measure(4, "answer_ms_p95", "end of speech → first sound, p95", "ms",
            goal=at_most(640), gate=at_most(640)),
    Measure(4, "answers_missing", "questions that no sound followed", "%"),
    Measure(4, "interruptions", "interruptions of a story"),
    Measure(4, "hush_ms_p50", "interrupt → silence, p50", "ms"),
    Measure(4, "hush_ms_p95", "interrupt → silence, p95", "ms", goal=at_most(320), gate=at_most(400)),
    Measure(4, "talk_over", "talks over the user", "%", goal=at_most(2), gate=at_most(5)),
    Measure(4, "babble", "sound although nothing was asked", "s per min"),
    Measure(4, "nods", "nods while it listens", "per min"),
    Measure(5, "gaze_x", "gaze follows the user, sideways, correlation",
            goal=at_least(0.8), gate=at_least(0.9)),
    Measure(5, "gaze_y", "gaze follows the user, up and down, correlation",
            goal=at_least(0.8), gate=at_least(0.9)),
    Measure(5, "gaze_lag_frames", "how far the gaze is behind", "frames"),
    Measure(5, "gaze_off", "mean distance of gaze and user, where 1 is half the picture"),
    Measure(5, "scenes", "drawn scenes, unseen kinds of people, rooms and things"),
    Measure(5, "present_right", "knows whether somebody is there", "%", goal=at_least(90), gate=at_least(90)),
    Measure(5, "colour_right", "knows the colour held up", "%", goal=at_least(90), gate=at_least(65)),
    Measure(5, "sight_right", "both of these", "%", goal=at_least(90)),
    Measure(5, "sight_answers_right", "right answer to \"what do you see\", \"what colour is this\"", "%",
            goal=at_least(90)),
)  # fmt: skip

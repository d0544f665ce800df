"""All measures: what they are, their goals, and what of their material was in training."""

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
    """One row: a level, a name, what it is and its unit.

    Attributes:
        goal: what the level asks for.
        in_training: what of the material that is judged was in training; nothing of it is held out then.
        optional: known where the voices for it are installed, else NaN.
    """

    level: int
    name: str
    what: str
    unit: str = ""
    _: KW_ONLY
    goal: Bounds | None = None
    in_training: str = ""
    optional: bool = False

    @property
    def title(self) -> str:
        """What it is, and what of it was in training."""
        return f"{self.what} (in training: {self.in_training})" if self.in_training else self.what


def as_json(value: float) -> float | str | None:
    """A value for JSON, which knows neither infinity nor NaN: "never", and null for what isn't known."""
    return None if math.isnan(value) else "never" if math.isinf(value) else value


def at_least(low: float) -> Bounds:
    """No less."""
    return Bounds(low=low)


def at_most(high: float) -> Bounds:
    """No more."""
    return Bounds(high=high)


FACE = "the face itself, there is but one"
PATTERNS = "the patterns of small talk, the manuals that prose is from"
WORDINGS = "the wordings"
COLOURS = "the eight colours"
SOUNDS = "the kinds of noise and music"

MEASURES = (
    Measure(0, "psnr", "video codec, whole picture", "dB", goal=at_least(30), in_training=FACE),
    Measure(0, "psnr_mouth", "video codec, mouth", "dB", goal=at_least(27), in_training=FACE),
    Measure(0, "psnr_eyes", "video codec, eyes", "dB", in_training=FACE),
    Measure(0, "silence_before_dbfs", "level before a line is typed", "dBFS", goal=at_most(-50)),
    Measure(0, "silence_after_dbfs", "level after each line", "dBFS", goal=at_most(-50)),
    Measure(0, "silence_loudest_unit_dbfs", "level of the loudest silent unit", "dBFS"),
    Measure(1, "forced_wer_over_original", "words wrong with forced phones, minus the original's", "points",
            goal=at_most(10)),
    Measure(1, "forced_wer", "words wrong with forced phones", "%"),
    Measure(1, "lip_correlation", "lip opening against the drawn face, correlation", goal=at_least(0.8)),
    Measure(1, "lip_correlation_best", "the same at the best lag"),
    Measure(1, "lip_best_lag_frames", "best lag of the lips (positive: late)", "frames",
            goal=Bounds(low=-1, high=1)),
    Measure(2, "wer_over_original", "words wrong in typed lines, minus the original's", "points",
            goal=at_most(15), in_training=PATTERNS),
    Measure(2, "wer", "words wrong in typed lines", "%", in_training=PATTERNS),
    Measure(2, "wer_small_talk", "of these, small talk", "%", in_training="its patterns and words"),
    Measure(2, "wer_prose", "of these, prose", "%", in_training="other sentences of the same manuals"),
    Measure(2, "wer_original", "words wrong, the voice it learned from", "%"),
    Measure(2, "wer_codec", "words wrong, that voice through the codec", "%"),
    Measure(2, "phones_exact", "phones that last exactly as long as the original's, to the frame", "%"),
    Measure(3, "requests", "requests by unseen voices of espeak-ng and flite, with noise, gain, room",
            in_training=f"{WORDINGS}, {SOUNDS}"),
    Measure(3, "requests_right", "right answer to these", "%", goal=at_least(95), in_training=WORDINGS),
    Measure(3, "requests_right_espeak", "of these, espeak-ng's voices", "%", in_training=WORDINGS),
    Measure(3, "requests_right_flite", "of these, flite's voice rms", "%", in_training=WORDINGS),
    Measure(3, "requests_wrong", "answered as another request", "%", in_training=WORDINGS),
    Measure(3, "requests_missed", "not answered", "%", in_training=WORDINGS),
    Measure(3, "requests_twice", "answers too many", "%", in_training=WORDINGS),
    Measure(3, "requests_right_unseen", "right answer to the same voices in wordings that it never met", "%",
            goal=at_least(95)),
    Measure(3, "requests_right_festival", "right answer to Festival's voice ked", "%", in_training=WORDINGS,
            optional=True),
    Measure(3, "requests_right_kokoro", "right answer to seven voices of Kokoro", "%", in_training=WORDINGS,
            optional=True),
    Measure(3, "requests_right_piper", "right answer to Piper's voice joe", "%", in_training=WORDINGS,
            optional=True),
    Measure(3, "other_minutes", "noise, music, other sentences", "min", in_training=SOUNDS),
    Measure(3, "false_starts", "false starts on these", "per 5 min", goal=at_most(1), in_training=SOUNDS),
    Measure(3, "false_starts_noise", "false starts on noise alone", "per 5 min", in_training="its kinds"),
    Measure(3, "false_starts_music", "false starts on music alone", "per 5 min", in_training="its kinds"),
    Measure(3, "false_starts_sentences", "false starts on other sentences alone", "per 5 min"),
    Measure(4, "model_side_ms_p50", "unit of the user complete → unit of the agent made, through the two "
            "processes of `live`, p50", "ms"),
    Measure(4, "model_side_ms_p99", "the same, p99", "ms"),
    Measure(4, "answer_ms_p50", "end of a question → first sound of the right answer, p50", "ms",
            goal=at_most(480), in_training=WORDINGS),
    Measure(4, "answer_ms_p95", "the same, p95", "ms", goal=at_most(640), in_training=WORDINGS),
    Measure(4, "answers_missing", "questions without a right answer", "%", in_training=WORDINGS),
    Measure(4, "interruptions", "interruptions of a story"),
    Measure(4, "barge_in_ms_p50", "interrupt → silence, p50", "ms"),
    Measure(4, "barge_in_ms_p95", "interrupt → silence, p95", "ms", goal=at_most(320)),
    Measure(4, "talk_over", "talks over the user", "%", goal=at_most(2)),
    Measure(4, "babble", "sound although nothing was asked", "s per min"),
    Measure(4, "nods", "nods while it listens", "per min"),
    Measure(5, "gaze_x", "gaze follows the user, sideways, correlation", goal=at_least(0.8)),
    Measure(5, "gaze_y", "gaze follows the user, up and down, correlation", goal=at_least(0.8)),
    Measure(5, "gaze_lag_frames", "how far the gaze is behind", "frames"),
    Measure(5, "gaze_off", "mean distance of gaze and user, where 1 is half the picture"),
    Measure(5, "scenes", "drawn scenes, each of an unseen kind of person, room and thing",
            in_training=COLOURS),
    Measure(5, "present_right", "knows whether somebody is there", "%", goal=at_least(90)),
    Measure(5, "colour_right", "knows the colour held up", "%", goal=at_least(90), in_training=COLOURS),
    Measure(5, "vision_right", "both of these", "%", goal=at_least(90), in_training=COLOURS),
    Measure(5, "vision_answers_right", "right answer to \"what do you see\", \"what colour is this\"", "%",
            goal=at_least(90), in_training=f"{WORDINGS}, {COLOURS}"),
)  # fmt: skip

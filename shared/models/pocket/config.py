"""Sizes of the pocket family: everything that a checkpoint's digest covers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from shared.models.audio_codec import AudioCodecConfig
from shared.models.layout import STEPS_PER_UNIT, Block, Layout, Stream
from shared.models.transformer import TransformerConfig
from shared.models.video_codec import VideoCodecConfig
from shared.tables import require_positive

FRAMES_PER_UNIT = 4
PHONE_LEAD = 2  # frames of 40 ms by which the phone slots run ahead of the sound


class Token(enum.IntEnum):
    """The streams of a unit, in the order of the cache; the value indexes the class embedding."""

    USER_PICTURE = 0
    USER_SOUND = 1
    WORD = 2
    PHONE = 3
    AGENT_PICTURE = 4
    AGENT_SOUND = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class SensesConfig:
    """The user's side: sound as log-mel, picture as one patch grid a unit."""

    sample_rate: int = 16_000
    window: int = 400
    hop: int = 160
    mel_bands: int = 64
    ear_dim: int = 96
    ear_blocks: int = 2
    height: int = 64
    width: int = 64
    eye_widths: tuple[int, ...] = (32, 64, 128)
    eye_patch: int = 8
    gate: float = 0.0  # weight of what is sensed when training begins; 0: the user's tokens carry time alone

    def __post_init__(self) -> None:
        require_positive(self, "senses")
        if self.hop * STEPS_PER_UNIT * 25 != self.sample_rate:
            raise ValueError(f"senses: hop={self.hop} is not 10 ms at sample_rate={self.sample_rate}")
        if self.window < self.hop:
            raise ValueError(f"senses: window={self.window} is shorter than hop={self.hop}")
        for name, size in (("height", self.height), ("width", self.width)):
            if size % self._cell:
                raise ValueError(f"senses: {name}={size} is not a multiple of {self._cell}")

    @property
    def _cell(self) -> int:
        return int(self.eye_patch * 2 ** (len(self.eye_widths) - 1))

    @property
    def eye_grid(self) -> tuple[int, int]:
        """Rows and columns of the user's picture tokens."""
        return self.height // self._cell, self.width // self._cell


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanConfig:
    """How many units of history each class keeps."""

    picture: int = 12
    sound: int = 24
    text: int = 24

    def __post_init__(self) -> None:
        require_positive(self, "spans")


@dataclass(frozen=True, kw_only=True, slots=True)
class PocketConfig:
    """A whole model of the family."""

    transformer: TransformerConfig = field(default_factory=TransformerConfig)
    audio: AudioCodecConfig = field(default_factory=AudioCodecConfig)
    video: VideoCodecConfig = field(default_factory=VideoCodecConfig)
    senses: SensesConfig = field(default_factory=SensesConfig)
    spans: SpanConfig = field(default_factory=SpanConfig)
    solver_steps: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "model")
        if self.audio.samples_per_latent * 25 != self.audio.sample_rate:
            raise ValueError(
                f"audio codec: {self.audio.samples_per_latent} samples a latent are not 40 ms at "
                f"{self.audio.sample_rate} Hz"
            )

    @property
    def picture_tokens(self) -> int:
        """Agent picture tokens a unit."""
        return FRAMES_PER_UNIT * self.video.tokens_per_frame

    def layout(self) -> Layout:
        """The family's streams; the scratch places hold the noisy tokens of the solve."""
        each = tuple(range(STEPS_PER_UNIT))
        rows, columns = self.senses.eye_grid
        per_frame = self.video.tokens_per_frame
        picture = tuple(step for step in each for _ in range(per_frame))
        spans = self.spans
        streams = (
            Stream(name="user picture", block=Block.STATE, offsets=(3,) * rows * columns, span=spans.picture),
            Stream(name="user sound", block=Block.STATE, offsets=each, span=spans.sound),
            Stream(name="word", block=Block.STATE, offsets=(0,), span=spans.text),
            Stream(name="phones", block=Block.STATE, offsets=each, span=spans.text),
            Stream(name="agent picture", block=Block.REMEMBER, offsets=picture, span=spans.picture),
            Stream(name="agent sound", block=Block.REMEMBER, offsets=each, span=spans.sound),
        )
        return Layout(streams, scratch=len(picture) + len(each))

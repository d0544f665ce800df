"""Sizes of the pocket family: everything that a checkpoint's digest covers.

Shape suffixes: B batch, F latents of a unit, P picture tokens, Z latent dims.
"""

import dataclasses
import enum
from dataclasses import dataclass, field

from torch import Tensor

from shared.models.audio_codec import AudioCodecConfig
from shared.models.layout import STEPS_PER_UNIT, KVBlock, Layout, Stream, Tower
from shared.models.transformer import TransformerConfig
from shared.models.video_codec import VideoCodecConfig
from shared.tables import require_positive

FRAMES_PER_UNIT = 4
GESTURES = 3  # numbers a frame: gaze to the right, gaze down, nod
PHONE_LEAD = 2  # frames of 40 ms by which the phone tokens run ahead of the sound


class Token(enum.IntEnum):
    """The streams of a unit, in the order of the cache; the value indexes the class embeddings."""

    USER_PICTURE = 0
    USER_SOUND = 1
    WORD = 2
    PHONE = 3
    GESTURE = 4
    AGENT_PICTURE = 5
    AGENT_SOUND = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerConfig:
    """The user's side: encoders of sound (as log-mel) and of pictures (one token a unit), and their tower.

    The listening tower has the layers, key heads and head dims of the speaking one, since they share a cache.
    """

    sample_rate: int = 16_000
    window: int = 400
    hop: int = 160
    mel_bands: int = 64
    audio_dim: int = 160
    audio_blocks: int = 4
    height: int = 64
    width: int = 64
    vision_widths: tuple[int, ...] = (32, 64, 96, 128)  # each halves the picture
    dim: int = 256
    heads: int = 4
    ffn: int = 352

    def __post_init__(self) -> None:
        require_positive(self, "listener")
        if self.hop * STEPS_PER_UNIT * 25 != self.sample_rate:
            raise ValueError(f"listener: hop={self.hop} is not 10 ms at sample_rate={self.sample_rate}")
        if self.window < self.hop:
            raise ValueError(f"listener: window={self.window} is shorter than hop={self.hop}")
        cell = 2 ** len(self.vision_widths)
        for name, size in (("height", self.height), ("width", self.width)):
            if size % cell:
                raise ValueError(f"listener: {name}={size} is not a multiple of {cell}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanConfig:
    """How many units of history each class keeps; the same number for all makes it a plain window."""

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
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    spans: SpanConfig = field(default_factory=SpanConfig)
    solver_steps: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "model")
        if self.audio.samples_per_latent * 25 != self.audio.sample_rate:
            raise ValueError(
                f"audio codec: {self.audio.samples_per_latent} samples a latent are not 40 ms at "
                f"{self.audio.sample_rate} Hz"
            )
        self.listening_tower()

    def listening_tower(self) -> TransformerConfig:
        """Sizes of the listening tower; raises ValueError where heads are no multiple of key heads."""
        own = self.listener
        return dataclasses.replace(self.transformer, dim=own.dim, heads=own.heads, ffn=own.ffn)

    @property
    def picture_tokens(self) -> int:
        """Agent picture tokens a unit."""
        return FRAMES_PER_UNIT * self.video.tokens_per_frame

    @property
    def latent_numbers(self) -> int:
        """Latents of a unit, picture and sound."""
        return self.picture_tokens * self.video.latent_dim + STEPS_PER_UNIT * self.audio.latent_dim

    def split(self, latents_BF: Tensor) -> tuple[Tensor, Tensor]:
        """Picture [B, P, Z] and sound [B, 4, Z'] of units of flat latents."""
        batch, sound_numbers = len(latents_BF), STEPS_PER_UNIT * self.audio.latent_dim
        picture, sound = latents_BF[:, :-sound_numbers], latents_BF[:, -sound_numbers:]
        return picture.reshape(batch, -1, self.video.latent_dim), sound.reshape(batch, STEPS_PER_UNIT, -1)

    def layout(self) -> Layout:
        """The family's streams; the scratch places hold the noisy tokens of the solve."""
        each = tuple(range(STEPS_PER_UNIT))
        picture = tuple(step for step in each for _ in range(self.video.tokens_per_frame))
        state, commit, user, spans = KVBlock.STATE, KVBlock.COMMIT, Tower.LISTENING, self.spans
        streams = (
            Stream(name="user picture", block=state, offsets=(3,), span=spans.picture, tower=user),
            Stream(name="user sound", block=state, offsets=each, span=spans.sound, tower=user),
            Stream(name="word", block=state, offsets=(0,), span=spans.text),
            Stream(name="phones", block=state, offsets=each, span=spans.text),
            Stream(name="gesture", block=state, offsets=(0,), span=spans.text),
            Stream(name="agent picture", block=commit, offsets=picture, span=spans.picture),
            Stream(name="agent sound", block=commit, offsets=each, span=spans.sound),
        )
        return Layout(streams, scratch=len(picture) + len(each))

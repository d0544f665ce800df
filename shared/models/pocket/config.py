"""Sizes of the pocket family: everything that a checkpoint's digest covers."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field

from torch import Tensor

from shared.checkpoint import BEARS_ON_WEIGHTS
from shared.models.audio_codec import AudioCodecConfig
from shared.models.layout import STEPS_PER_UNIT, KVBlock, Layout, Stream, Tower
from shared.models.transformer import TransformerConfig
from shared.models.video_codec import VideoCodecConfig
from shared.tables import require_positive

FRAMES_PER_UNIT = 4
GESTURES = 3  # numbers a frame: gaze to the right, gaze down, nod
PHONE_LEAD = 2  # frames of 40 ms by which the phone slots run ahead of the sound


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
class SensesConfig:
    """The user's side: ears for sound as log-mel, eyes for one glance a unit, and the tower that listens.

    The tower has the layers, key heads and head dims of the speaking one, since they share a cache.
    """

    sample_rate: int = 16_000
    window: int = 400
    hop: int = 160
    mel_bands: int = 64
    ear_dim: int = 160
    ear_blocks: int = 4
    height: int = 64
    width: int = 64
    eye_widths: tuple[int, ...] = (32, 64, 96, 128)  # each halves the picture
    dim: int = 256
    heads: int = 4
    ffn: int = 352

    def __post_init__(self) -> None:
        require_positive(self, "senses")
        if self.hop * STEPS_PER_UNIT * 25 != self.sample_rate:
            raise ValueError(f"senses: hop={self.hop} is not 10 ms at sample_rate={self.sample_rate}")
        if self.window < self.hop:
            raise ValueError(f"senses: window={self.window} is shorter than hop={self.hop}")
        cell = 2 ** len(self.eye_widths)
        for name, size in (("height", self.height), ("width", self.width)):
            if size % cell:
                raise ValueError(f"senses: {name}={size} is not a multiple of {cell}")


class History(enum.Enum):
    """How the spans are meant. Whatever it is, memory and the time of a unit are bounded from the start.

    TIERED: each class of tokens has its own, long memory at small cost. WINDOW: all have the same. FULL:
    likewise, and no session is expected to get that long; one that does is told, and goes on with a window.
    """

    TIERED = "tiered"
    WINDOW = "window"
    FULL = "full"


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
    # Weights fit the spans, whatever they are called.
    history: History = field(default=History.TIERED, metadata={BEARS_ON_WEIGHTS: False})
    solver_steps: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "model")
        if self.audio.samples_per_latent * 25 != self.audio.sample_rate:
            raise ValueError(
                f"audio codec: {self.audio.samples_per_latent} samples a latent are not 40 ms at "
                f"{self.audio.sample_rate} Hz"
            )
        self.listening()
        spans = dataclasses.asdict(self.spans)
        if self.history is not History.TIERED and len(set(spans.values())) > 1:
            each = ", ".join(f"{name}={span}" for name, span in spans.items())
            raise ValueError(f"history={self.history.value!r} needs one span for all, not {each}")

    @property
    def full_after(self) -> int | None:
        """Units after which a history that should be complete begins to forget."""
        return self.spans.text if self.history is History.FULL else None

    def listening(self) -> TransformerConfig:
        """Sizes of the tower that listens; raises ValueError where its heads don't share out."""
        senses = self.senses
        return dataclasses.replace(self.transformer, dim=senses.dim, heads=senses.heads, ffn=senses.ffn)

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
        per_frame = self.video.tokens_per_frame
        picture = tuple(step for step in each for _ in range(per_frame))
        spans = self.spans
        streams = (
            Stream(
                name="user picture",
                block=KVBlock.STATE,
                offsets=(3,),
                span=spans.picture,
                tower=Tower.LISTENING,
            ),
            Stream(
                name="user sound", block=KVBlock.STATE, offsets=each, span=spans.sound, tower=Tower.LISTENING
            ),
            Stream(name="word", block=KVBlock.STATE, offsets=(0,), span=spans.text),
            Stream(name="phones", block=KVBlock.STATE, offsets=each, span=spans.text),
            Stream(name="gesture", block=KVBlock.STATE, offsets=(0,), span=spans.text),
            Stream(name="agent picture", block=KVBlock.COMMIT, offsets=picture, span=spans.picture),
            Stream(name="agent sound", block=KVBlock.COMMIT, offsets=each, span=spans.sound),
        )
        return Layout(streams, scratch=len(picture) + len(each))

"""The `[model]` table of a Wan config."""

from dataclasses import dataclass, field
from enum import StrEnum

from shared.models.film import FilmFormat
from shared.models.wan.dit import PATCH, DiTConfig
from shared.models.wan.kv_cache import CacheShape
from shared.models.wan.schedule import ScheduleConfig
from shared.models.wan.taehv import SPACE_SCALE, TIME_SCALE, TaehvConfig
from shared.models.wan.vae import VaeConfig


class DecoderKind(StrEnum):
    """What makes frames of latents."""

    WAN = "wan"
    TAEHV = "taehv"


class TextKind(StrEnum):
    """What reads prompts."""

    UMT5 = "umt5"
    POCKET = "pocket"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where published weights are: each a path within the config's `weights`, or hub:OWNER/NAME/PATH."""

    dit: str
    decoder: str
    text: str
    """A folder of a `transformers` encoder."""
    tokenizer: str
    """The folder of its tokenizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WanConfig:
    """A whole model of the family.

    `block`, `window` and `sink` are in latent frames: how many are denoised together, how many before them
    they look back at, and how many of the scene's first stay in sight for ever.
    """

    width: int = 832
    height: int = 480
    fps: int = 16
    block: int = 3
    window: int = 18
    sink: int = 0
    decoder: DecoderKind = DecoderKind.WAN
    text: TextKind = TextKind.UMT5
    dit: DiTConfig = field(default_factory=DiTConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    vae: VaeConfig = field(default_factory=VaeConfig)
    taehv: TaehvConfig = field(default_factory=TaehvConfig)
    sources: Sources | None = None

    def __post_init__(self) -> None:
        token = SPACE_SCALE * PATCH[1]
        for name, size in (("width", self.width), ("height", self.height)):
            if size < token or size % token:
                raise ValueError(f"model: {name}={size} must be a multiple of {token}")
        if not 1 <= self.fps <= 120:
            raise ValueError(f"model: fps={self.fps} must be from 1 to 120")
        for decoder in (self.vae, self.taehv):
            if decoder.latent_channels != self.dit.latent_channels:
                channels = f"{decoder.latent_channels}, dit {self.dit.latent_channels}"
                raise ValueError(f"model: a decoder has latent_channels={channels}")
        self.cache_shape()

    @property
    def latent_height(self) -> int:
        return self.height // SPACE_SCALE

    @property
    def latent_width(self) -> int:
        return self.width // SPACE_SCALE

    @property
    def block_shape(self) -> tuple[int, int, int, int]:
        """Latents of a block: frames, channels, height, width."""
        return self.block, self.dit.latent_channels, self.latent_height, self.latent_width

    def cache_shape(self) -> CacheShape:
        """What the denoiser remembers; raises ValueError where window or sink don't fit the block."""
        tokens = (self.latent_height // PATCH[1]) * (self.latent_width // PATCH[2])
        try:
            return CacheShape(tokens=tokens, block=self.block, window=self.window, sink=self.sink)
        except ValueError as error:
            raise ValueError(f"model: {error}") from None

    def format(self) -> FilmFormat:
        """What its films look like."""
        return FilmFormat(
            width=self.width, height=self.height, fps=self.fps, block=self.block, frames_per_latent=TIME_SCALE
        )

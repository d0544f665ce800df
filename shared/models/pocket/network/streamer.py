"""All weights of a pocket model in one module; no per-session state lives here.

Shape suffixes: B batch, U units, T tokens, C model dim, Z latent dims, P picture tokens a unit, G numbers
of a gesture.
"""

import torch
from torch import Tensor, nn

from shared.models.pocket.config import FRAMES_PER_UNIT, GESTURES, PocketConfig, Token
from shared.models.pocket.network.listener import Listener
from shared.models.pocket.speech.phones import PHONES
from shared.models.transformer import Attend, FlowTime, Transformer, rms_norm

WORD_VALUES = 2  # of the word token: nothing is said, something is said


class StreamerNetwork(nn.Module):
    """The two towers: the one that listens, and the one that speaks and shows the face.

    The latter with what turns the plan of a unit (word, phones, gesture) and latents into tokens, and tokens
    into velocities. Codecs stand beside it (`AudioCodec`, `VideoCodec`): they are trained first and apart.
    """

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.transformer.dim
        self.listener = Listener(config)
        self.transformer = Transformer(config.transformer)
        self.flow_time = FlowTime(config.transformer)
        self.token_class = nn.Embedding(len(Token), dim)
        self.word = nn.Embedding(WORD_VALUES, dim)
        self.phone = nn.Embedding(len(PHONES), dim)
        self.gesture_in = nn.Linear(FRAMES_PER_UNIT * GESTURES, dim)
        self.picture_in = nn.Linear(config.video.latent_dim, dim)
        self.picture_place = nn.Parameter(torch.zeros(config.video.tokens_per_frame, dim))
        self.sound_in = nn.Linear(config.audio.latent_dim, dim)
        self.noisy = nn.Parameter(torch.zeros(dim))
        self.picture_out = nn.Linear(dim, config.video.latent_dim)
        self.sound_out = nn.Linear(dim, config.audio.latent_dim)
        nn.init.zeros_(self.picture_out.weight)
        nn.init.zeros_(self.sound_out.weight)

    def text_tokens(self, words_BT: Tensor, phones_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Embed whether anything is said, and the phones; return (word, phone) tokens."""
        word = self.token_class.weight[Token.WORD] + self.word(words_BT)
        return word, self.token_class.weight[Token.PHONE] + self.phone(phones_BT)

    def gesture_token(self, gesture_BUG: Tensor) -> Tensor:
        """Embed gaze to the right, gaze down and nod of each of a unit's frames: [B, U, 12] to [B, U, C]."""
        token: Tensor = self.token_class.weight[Token.GESTURE] + self.gesture_in(gesture_BUG)
        return token

    def agent_tokens(self, picture_BPZ: Tensor, sound_BTZ: Tensor) -> tuple[Tensor, Tensor]:
        """Embed agent latents, clean or noisy, of whole units; return (picture, sound) tokens."""
        frames = picture_BPZ.shape[1] // len(self.picture_place)
        place_PC = self.picture_place.repeat(frames, 1)
        picture = self.token_class.weight[Token.AGENT_PICTURE] + self.picture_in(picture_BPZ) + place_PC
        return picture, self.token_class.weight[Token.AGENT_SOUND] + self.sound_in(sound_BTZ)

    def run(self, tokens_BTC: Tensor, steps_T: Tensor, modulation: Tensor, attend: Attend) -> Tensor:
        out: Tensor = self.transformer(tokens_BTC, steps_T, modulation, attend)
        return out

    def velocity_head(self, picture_BPC: Tensor, sound_BTC: Tensor) -> tuple[Tensor, Tensor]:
        """Read velocities off the transformer's last tokens: [B, P, Z] and [B, T, Z]."""
        return self.picture_out(rms_norm(picture_BPC)), self.sound_out(rms_norm(sound_BTC))

"""The listening tower: the user's tokens through weights of their own, and the head that is read off them.

Its keys and values share the cache with the agent's, but neither tower attends to the other: what the user
says and shows reaches the agent's voice and face through the plan tokens alone (`network.streamer`). So the
tower can be trained apart, and the voice stays what it is. Who and what is in the picture is read off each
picture token alone (`VisionEncoder`); the tower is there for sound.

Shape suffixes: B batch, U units, T sound tokens (4 a unit), C model dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.pocket.config import PocketConfig, Token
from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.network.encoders import AudioEncoder, VisionEncoder
from shared.models.transformer import NUM_MODULATIONS, Attend, Transformer, rms_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechDetection:
    """The user's speech in each sound token, as logits: `request` [B, T, requests] and `voice` [B, T]."""

    request: Tensor
    voice: Tensor


class Listener(nn.Module):
    """Encoders of sound and picture, tower and speech head."""

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        own = config.listener
        self.audio_encoder = AudioEncoder(own)
        self.vision_encoder = VisionEncoder(own)
        self.token_class = nn.Embedding(2, own.dim)
        self.transformer = Transformer(config.listening_tower())
        self.speech_head = nn.Linear(own.dim, len(Request) + 1)

    def user_tokens(self, picture_BUC: Tensor, sound_BTC: Tensor) -> tuple[Tensor, Tensor]:
        """Add their class to the tokens that the encoders made."""
        picture = self.token_class.weight[Token.USER_PICTURE] + picture_BUC
        return picture, self.token_class.weight[Token.USER_SOUND] + sound_BTC

    def run(self, tokens_BTC: Tensor, steps_T: Tensor, attend: Attend) -> Tensor:
        """Run the tower; it has no flow time."""
        nothing = torch.zeros(1, 1, NUM_MODULATIONS, tokens_BTC.shape[-1], device=tokens_BTC.device)
        out: Tensor = self.transformer(tokens_BTC, steps_T, nothing, attend)
        return out

    def detect(self, sound_BTC: Tensor) -> SpeechDetection:
        """Read the head off the tower's last sound tokens."""
        logits = self.speech_head(rms_norm(sound_BTC))
        return SpeechDetection(request=logits[..., :-1], voice=logits[..., -1])

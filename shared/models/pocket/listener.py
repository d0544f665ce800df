"""The tower that listens: the user's tokens through weights of their own, and what is heard in them.

Its keys and values share the cache with the agent's, but neither tower sees the other's: what is heard and
seen reaches the agent's voice and face through the slots alone. So the tower can be trained apart, and the
voice stays what it is. What is seen is told by each glance alone (`senses.Eyes`); the tower hears.

Shape suffixes: B batch, U units, T sound tokens (4 a unit), C model dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.pocket.config import PocketConfig, Token
from shared.models.pocket.replies import Request
from shared.models.pocket.senses import Ears, Eyes
from shared.models.transformer import NUM_MODULATIONS, Attend, Transformer, rms_norm


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """What sound tokens tell, as logits: `request` [B, T, requests] and `voice` [B, T]."""

    request: Tensor
    voice: Tensor


class Listener(nn.Module):
    """Ears, eyes, tower and the heads of what is heard."""

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        senses = config.senses
        self.ears = Ears(senses)
        self.eyes = Eyes(senses)
        self.token_class = nn.Embedding(2, senses.dim)
        self.transformer = Transformer(config.listening())
        self.of_sound = nn.Linear(senses.dim, len(Request) + 1)

    def user_tokens(self, seen_BUC: Tensor, heard_BTC: Tensor) -> tuple[Tensor, Tensor]:
        """Add the class to what eyes and ears made."""
        picture = self.token_class.weight[Token.USER_PICTURE] + seen_BUC
        return picture, self.token_class.weight[Token.USER_SOUND] + heard_BTC

    def run(self, tokens_BTC: Tensor, steps_T: Tensor, attend: Attend) -> Tensor:
        """Run the tower; it knows no flow time."""
        nothing = torch.zeros(1, 1, NUM_MODULATIONS, tokens_BTC.shape[-1], device=tokens_BTC.device)
        out: Tensor = self.transformer(tokens_BTC, steps_T, nothing, attend)
        return out

    def perceive(self, sound_BTC: Tensor) -> Heard:
        """Read the heads off the tower's last sound tokens."""
        told = self.of_sound(rms_norm(sound_BTC))
        return Heard(request=told[..., :-1], voice=told[..., -1])

"""The tower that listens: the user's tokens through weights of their own, and what is perceived in them.

Its keys and values share the cache with the agent's, but neither tower looks at the other's: what is heard
and seen reaches the agent's voice and face through the slots alone. So the tower can be trained apart, and
the voice stays what it is.

Shape suffixes: B batch, U units, T sound tokens (4 a unit), C model dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.models.pocket.config import PocketConfig, Token
from shared.models.pocket.replies import Colour, Request
from shared.models.pocket.senses import Ears, Eyes
from shared.models.transformer import NUM_MODULATIONS, Attend, Transformer, rms_norm

PLACE = 2  # to the right and down


@dataclass(frozen=True, kw_only=True, slots=True)
class Perceived:
    """Raw answers of the heads.

    Of sound tokens: `request` [B, T, requests] and `voice` [B, T], as logits. Of picture tokens: `present`
    [B, U] and `colour` [B, U, colours] as logits, `place` [B, U, 2] of the user's face in [-1, 1], x to the
    right and y down in the camera's picture.
    """

    request: Tensor
    voice: Tensor
    present: Tensor
    place: Tensor
    colour: Tensor


class Listener(nn.Module):
    """Ears, eyes, tower and heads."""

    def __init__(self, config: PocketConfig) -> None:
        super().__init__()
        senses = config.senses
        self.ears = Ears(senses)
        self.eyes = Eyes(senses)
        self.token_class = nn.Embedding(2, senses.dim)
        self.transformer = Transformer(config.listening())
        self.of_sound = nn.Linear(senses.dim, len(Request) + 1)
        self.of_picture = nn.Linear(senses.dim, 1 + PLACE + len(Colour))

    def user_tokens(self, heard_BTC: Tensor, seen_BTC: Tensor) -> tuple[Tensor, Tensor]:
        """Add the class to what ears and eyes made; return (picture, sound) tokens."""
        picture = self.token_class.weight[Token.USER_PICTURE] + seen_BTC
        return picture, self.token_class.weight[Token.USER_SOUND] + heard_BTC

    def run(self, tokens_BTC: Tensor, steps_T: Tensor, attend: Attend) -> Tensor:
        """Run the tower; it knows no flow time."""
        nothing = torch.zeros(1, 1, NUM_MODULATIONS, tokens_BTC.shape[-1], device=tokens_BTC.device)
        out: Tensor = self.transformer(tokens_BTC, steps_T, nothing, attend)
        return out

    def perceive(self, picture_BUC: Tensor, sound_BTC: Tensor) -> Perceived:
        """Read the heads off the tower's last tokens."""
        of_sound, of_picture = self.of_sound(rms_norm(sound_BTC)), self.of_picture(rms_norm(picture_BUC))
        present, place, colour = torch.split(of_picture, [1, PLACE, len(Colour)], dim=-1)
        return Perceived(
            request=of_sound[..., :-1], voice=of_sound[..., -1],
            present=present[..., 0], place=place.tanh(), colour=colour,
        )  # fmt: skip

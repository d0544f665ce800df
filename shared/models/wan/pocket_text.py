"""The text encoder of `wan-pocket`: a prompt's seven choices, one learned vector each."""

import torch
from torch import Tensor, nn

from shared.models.wan.language import SLOTS, PocketPrompt


class PocketTextEncoder(nn.Module):
    """Prompts to what the denoiser's cross-attention is made of, [B, seven, text dim]."""

    def __init__(self, text_dim: int) -> None:
        super().__init__()
        self.word = nn.ModuleDict(
            {slot: nn.Embedding(len(choices), text_dim) for slot, choices in SLOTS.items()}
        )

    def forward(self, prompts: list[PocketPrompt]) -> Tensor:
        columns = [table(self._indices(prompts, slot)) for slot, table in self.word.items()]
        return torch.stack(columns, dim=1)

    def _indices(self, prompts: list[PocketPrompt], slot: str) -> Tensor:
        choices = list(SLOTS[slot])
        chosen = [choices.index(getattr(prompt, slot)) for prompt in prompts]
        return torch.tensor(chosen, device=next(self.parameters()).device)

"""What reads prompts for the denoiser: umT5-xxl for Wan's weights, seven choices for the pocket model."""

import hashlib
import html
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from shared.devices import Device
from shared.errors import CheckpointError
from shared.models.wan.dit import DiTConfig
from shared.models.wan.language import read_prompt
from shared.models.wan.layout import RADIUS, arrange, raised
from shared.models.wan.pocket_text import PocketTextEncoder


class TextEncoder(Protocol):
    """Prompts to vectors."""

    def encode(self, prompt: str) -> Tensor:
        """[1, L, text dim], on the device, for `WanDiT.text_kv`."""

    def layout(self, prompt: str, seed: int) -> Tensor | None:
        """What is added to the noise that a scene begins as, [C, H, W]; None for nothing."""

    def warnings(self, prompt: str) -> list[str]:
        """What of a prompt is taken for something else, or left out."""


class PocketText:
    """The small model's own encoder: seven choices, and a layout that the seed decides."""

    def __init__(self, network: PocketTextEncoder, latent_shape: tuple[int, int, int]) -> None:
        self._network = network
        self._latent_shape = latent_shape

    @torch.inference_mode()
    def encode(self, prompt: str) -> Tensor:
        choices, _ = read_prompt(prompt)
        vectors: Tensor = self._network([choices])
        return vectors

    def layout(self, prompt: str, seed: int) -> Tensor | None:
        choices, _ = read_prompt(prompt)
        starts = arrange(choices, RADIUS[choices.size], np.random.default_rng(seed))
        return raised(starts, *self._latent_shape)

    def warnings(self, prompt: str) -> list[str]:
        return read_prompt(prompt)[1]


class HashedText:
    """Stands for an encoder where weights are random: vectors that depend on the prompt, and mean nothing."""

    def __init__(self, config: DiTConfig, device: Device) -> None:
        self._shape = (1, config.text_len, config.text_dim)
        self._device = device

    def encode(self, prompt: str) -> Tensor:
        of_prompt = int.from_bytes(hashlib.blake2b(prompt.encode(), digest_size=7).digest())
        vectors = torch.randn(self._shape, generator=torch.Generator().manual_seed(of_prompt))
        return vectors.to(self._device.torch)

    def layout(self, prompt: str, seed: int) -> Tensor | None:
        del prompt, seed
        return None

    def warnings(self, prompt: str) -> list[str]:
        del prompt
        return []


class Umt5Text:
    """umT5's encoder through `transformers`, padded to `text_len` with zeros *after* the encoder, as in Wan.

    Raises:
        CheckpointError: `transformers` is not installed, or the folder holds no such model.
    """

    def __init__(self, folder: Path, tokenizer: Path, config: DiTConfig, device: Device) -> None:
        try:
            from transformers import AutoTokenizer, UMT5EncoderModel  # noqa: PLC0415 - of the extra `wan`
        except ImportError:
            raise CheckpointError(
                "text='umt5' needs the extra wan: pip install 'thinker-performer[wan]'"
            ) from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(tokenizer)
            network: torch.nn.Module = UMT5EncoderModel.from_pretrained(folder, dtype=device.dtype)
        except (OSError, ValueError) as error:
            why = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"weights: no umT5 encoder in {folder} and {tokenizer}: {why}") from None
        self._network = network.to(device.torch).eval().requires_grad_(False)
        self._length = config.text_len
        self._device = device.torch

    @torch.inference_mode()
    def encode(self, prompt: str) -> Tensor:
        tokens = self._tokenizer(
            cleaned(prompt),
            max_length=self._length,
            padding="max_length",
            truncation=True,
            return_tensors="pt",
        ).to(self._device)
        vectors: Tensor = self._network(
            tokens.input_ids, attention_mask=tokens.attention_mask
        ).last_hidden_state
        out: Tensor = vectors * tokens.attention_mask[:, :, None].to(vectors.dtype)
        return out

    def layout(self, prompt: str, seed: int) -> Tensor | None:
        del prompt, seed
        return None

    def warnings(self, prompt: str) -> list[str]:
        tokens = len(self._tokenizer(cleaned(prompt)).input_ids)
        return [f"of {tokens} tokens the first {self._length} are read"] if tokens > self._length else []


def cleaned(prompt: str) -> str:
    """Without character references and runs of white space, as Wan cleans what it reads."""
    return " ".join(html.unescape(html.unescape(prompt)).split())

"""The denoiser's memory of a film: keys and values of its first latents and of the last ones, preallocated.

Latents lie one behind the other in one buffer, so that what a block sees is one slice of it: no mask, no
gather, no copy in a layer. The window moves along the buffer, and the sink is written anew just before it,
over what has left the window. When the end is reached, what is still seen moves to the front, once in as many
blocks as there is room to spare.

    before the window moves      [sink | window ......... | block]
    after                         - - - - [sink | window ......... | block]

Keys are rotated by their place in the film, which may be any number of latents. Those of the sink are turned
on with the window, as if they lay just before it: the network meets no distance that it was not trained on.

Shape suffixes: H heads, T tokens, D head dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shared.models.wan.dit import DiTConfig, attention, rotate, time_angles


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheShape:
    """What a cache has room for; block, window and sink in latent frames.

    A block sees `window` latents before it, and the first `sink` ones.
    """

    tokens: int
    """Of one latent frame."""
    block: int
    window: int
    sink: int

    def __post_init__(self) -> None:
        if self.block < 1 or self.window < self.block or self.window % self.block:
            raise ValueError(f"window={self.window} must be a multiple of block={self.block}, and not 0")
        if self.sink < 0 or self.sink % self.block:
            raise ValueError(f"sink={self.sink} must be a multiple of block={self.block}, or 0")

    @property
    def places(self) -> int:
        """Latent frames that the buffer holds: what is seen, and as many as the window to spare."""
        return self.sink + self.window + self.block + self.window

    def nbytes(self, config: DiTConfig, dtype: torch.dtype) -> int:
        """Bytes of a whole cache."""
        numbers = config.layers * 2 * config.dim * (self.places + self.sink) * self.tokens
        return numbers * dtype.itemsize


class FilmKVCache:
    """One session's keys and values, in memory of its own."""

    def __init__(
        self, config: DiTConfig, shape: CacheShape, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        self._config = config
        self._kv, self._sink = (
            torch.zeros(
                config.layers,
                2,
                1,
                config.heads,
                latents * shape.tokens,
                config.head_dim,
                dtype=dtype,
                device=device,
            )
            for latents in (shape.places, shape.sink)
        )
        self._start = self._end = 0  # latents' places: of the first that is seen, and of the block to come
        self.latents = 0
        """Latents that were kept: where in the film the block to come lies."""

    def reset(self) -> None:
        """Begin a new film."""
        self._start = self._end = self.latents = 0

    def clear(self) -> None:
        """Begin a new film, with nothing left in memory of the last one."""
        self.reset()
        self._kv.zero_()
        self._sink.zero_()

    def memory(self) -> tuple[Tensor, Tensor]:
        """All that it holds: keys and values, and those of the sink as they were first written."""
        return self._kv, self._sink

    def attend(self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor) -> Tensor:
        """Write the block's keys and values over its last ones, and gather from all that it sees."""
        tokens = self.shape.tokens
        own = slice(self._end * tokens, (self._end + self.shape.block) * tokens)
        seen = slice(self._start * tokens, own.stop)
        keys, values = self._kv[layer]
        keys[:, :, own] = k_BHTD
        values[:, :, own] = v_BHTD
        return attention(q_BHTD, keys[:, :, seen], values[:, :, seen])

    def keep(self) -> None:
        """The block is final; the next one lies behind it."""
        shape, tokens = self.shape, self.shape.tokens
        if self.latents < shape.sink:
            kept = slice(self.latents * tokens, (self.latents + shape.block) * tokens)
            self._sink[:, :, :, :, kept] = self._places(self._end, shape.block)
        self._end += shape.block
        self.latents += shape.block
        if self._end - self._start > shape.sink + shape.window:
            self._start += shape.block
            if self._end + shape.block > shape.places:
                self._move_to_front()
            self._write_sink()

    def _places(self, first: int, count: int) -> Tensor:
        return self._kv[:, :, :, :, first * self.shape.tokens : (first + count) * self.shape.tokens]

    def _move_to_front(self) -> None:
        seen = self._end - self._start
        self._places(0, seen).copy_(self._places(self._start, seen).clone())
        self._start, self._end = 0, seen

    def _write_sink(self) -> None:
        """Before the window, its keys turned from their place in the film to the one that they have now."""
        shape = self.shape
        if not shape.sink:
            return
        moved = self.latents - shape.window - shape.sink
        turned = self._places(self._start, shape.sink)
        turned[:, 0] = rotate(self._sink[:, 0], time_angles(self._config, moved, self._kv.device))
        turned[:, 1] = self._sink[:, 1]

"""Work that is recorded once and replayed, and buckets of sizes to record it for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shared.errors import DeviceError

Outputs = Tensor | tuple[Tensor, ...]
Work = Callable[..., Any]
"""From tensors to `Outputs`."""


def bucket_sizes(largest: int) -> list[int]:
    """Sizes that work is recorded for: powers of two up to `largest`, and `largest`."""
    return sorted({*(1 << n for n in range(largest.bit_length())), largest})


class Replay:
    """Recorded work: a call copies its arguments to `inputs`, replays, and returns the `outputs` anew."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Outputs, replay: Callable[[], None]) -> None:
        self._inputs = tuple(inputs)
        self._outputs = outputs
        self._replay = replay

    @torch.inference_mode()
    def __call__(self, *arguments: Tensor) -> Outputs:
        """Run the work on other values.

        Raises:
            DeviceError: another number of arguments, or another shape or dtype, than was recorded.
        """
        recorded, given = [_kind(x) for x in self._inputs], [_kind(x) for x in arguments]
        if recorded != given:
            raise DeviceError(f"this work was captured for {recorded} and called with {given}")
        for place, argument in zip(self._inputs, arguments, strict=True):
            place.copy_(argument, non_blocking=True)
        self._replay()
        return self._outputs


class InBuckets:
    """Work `recorded` for several sizes of the first dim, which all arguments and results have in common.

    Unless it `pads`, a call may have any size up to the largest.
    """

    def __init__(self, recorded: Mapping[int, Work], *, pads: bool) -> None:
        self._recorded = dict(sorted(recorded.items()))
        self._pads = pads

    def __call__(self, *arguments: Tensor) -> Outputs:
        """Run in the smallest bucket that holds the batch.

        What is missing is filled with copies of the last row: they are always valid, and write in place what
        that row writes.

        Raises:
            DeviceError: no bucket is large enough, or the shapes are others than were recorded.
        """
        size = len(arguments[0])
        bucket = next((each for each in self._recorded if 1 <= size <= each), None)
        if bucket is None:
            raise DeviceError(f"a batch of {size} was asked for, and the buckets are {[*self._recorded]}")
        work = self._recorded[bucket]
        if not self._pads or bucket == size:
            whole: Outputs = work(*arguments)
            return whole
        padded: Outputs = work(*(_pad(x, bucket) for x in arguments))
        return padded[:size] if isinstance(padded, Tensor) else tuple(x[:size] for x in padded)


def _kind(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def _pad(x: Tensor, size: int) -> Tensor:
    return torch.cat([x, x[-1:].expand(size - len(x), *x.shape[1:])])

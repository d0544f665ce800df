"""Which weights a stage reads, found by watching it: what it reads whichever session it serves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Read = dict[int, int]
"""Bytes of each piece of memory, by something that tells it from others."""


def weights_read(work: Sequence[Callable[[], object]]) -> Read:
    """Bytes that all of `work` reads: the same stage for sessions that share nothing but the weights."""
    reads = []
    for each in work:
        with _Watch() as watch:
            each()
        reads.append(watch.read)
    common = set.intersection(*(set(read) for read in reads))
    return {key: num_bytes for key, num_bytes in reads[0].items() if key in common}


class _Watch(TorchDispatchMode):  # torch's own lacks types
    """Notes what operators read and did not make themselves."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: Read = {}
        self._made: set[int] = set()
        self._kept: list[Tensor] = []  # so that no address is used twice

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator."""
        for tensor in _tensors([args, kwargs or {}]):
            key, num_bytes = _memory(tensor)
            if key not in self._made:
                self.read[key] = num_bytes
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            key, _ = _memory(tensor)
            if key not in self.read:
                self._made.add(key)
                self._kept.append(tensor)
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Which memory a tensor lies in, and how large that is; oneDNN's own hide theirs, but are no views."""
    if tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]  # noqa: SLF001 - its only name
        return id(tensor), tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()

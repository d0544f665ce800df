"""Files of training: written whole or not at all, with a plain word when the disk is full."""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.errors import TrainingError


def write(path: Path, content: dict[str, Any]) -> None:
    """Save tensors under a temporary name and rename it: a kill never leaves half a file.

    Raises:
        TrainingError: it could not be written; what was there before still is.
    """
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(content, partial)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        partial.unlink(missing_ok=True)
        raise TrainingError(f"could not write {path} (disk full?): {error}") from None
    partial.replace(path)


def read(path: Path, device: str = "cpu") -> dict[str, Any]:
    """What `write` saved.

    Raises:
        TrainingError: the file is damaged.
    """
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
    except (EOFError, RuntimeError) as error:
        raise TrainingError(f"{path} is damaged ({error}); remove it to begin anew") from None
    return content


def require_room(folder: Path, needed: int, what: str) -> None:
    """Raise a TrainingError unless `needed` bytes are free where `folder` (or its next parent) is."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise TrainingError(
            f"{what} need {needed / 1e9:.1f} GB in {there}, only {free / 1e9:.1f} GB are free"
        )


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Eight hex digits that stand for the values of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:8]

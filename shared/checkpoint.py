"""Checkpoints: safetensors files in a folder, each stamped with the digest of the config that they fit."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from shared.errors import CheckpointError

FILE = "model.safetensors"
DIGEST_KEY = "config_digest"


def config_digest(config: Any) -> str:
    """A short digest of a config dataclass: equal fields and values give the same one on every machine."""
    text = json.dumps(dataclasses.asdict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save_weights(
    module: nn.Module, folder: Path, digest: str, *, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write all weights and buffers of `module` to `folder`; floating-point ones as `dtype`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {
        name: (value.to(dtype) if value.is_floating_point() else value).contiguous()
        for name, value in module.state_dict().items()
    }
    path = folder / FILE
    save_file(tensors, path, metadata={DIGEST_KEY: digest})
    return path


def load_weights(module: nn.Module, folder: Path, digest: str, *, whole: bool = True) -> str:
    """Load a folder's weights into `module` (converted to its dtypes), every one of them and no others.

    With `whole` false the file may hold more than the module has.

    Returns:
        A digest of config and weights together.

    Raises:
        CheckpointError: no readable safetensors file, made for another config, or of other tensors.
    """
    path = folder / FILE
    try:
        with safe_open(path, framework="pt") as file:
            made_for = (file.metadata() or {}).get(DIGEST_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except FileNotFoundError:
        raise CheckpointError(f"weights: {path} is not there") from None
    except OSError as error:
        raise CheckpointError(f"weights: {path} can't be read ({error})") from None
    except SafetensorError as error:
        raise CheckpointError(f"weights: {path} is damaged or no safetensors file ({error})") from None
    if made_for != digest:
        raise CheckpointError(f"weights: {path} was made for config {made_for}, this config is {digest}")
    own = module.state_dict()
    if not whole:
        tensors = {name: tensor for name, tensor in tensors.items() if name in own}
    wrong = sorted(own.keys() ^ tensors.keys()) or [n for n in own if own[n].shape != tensors[n].shape]
    if wrong:
        raise CheckpointError(f"weights: {path} does not fit the model: {', '.join(wrong[:3])}")
    module.load_state_dict(tensors)
    return hashlib.sha256((digest + _digest_of(path)).encode()).hexdigest()[:16]


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""Weights that others published, under the names that this project's modules have: the original's.

What is read: Wan's own files (`.safetensors`, `.pth`), the `.pt` files of Causal-Forcing and Self-Forcing,
the layout of Diffusers, and TAEHV's. Files that could hold code are read as tensors alone. Everything must
fit, every name and every shape.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from shared.errors import CheckpointError
from shared.models.wan.vae import VaeConfig

HUB = "hub:"
Weights = dict[str, Tensor]

_GENERATORS = ("generator_ema", "generator")
_WRAPPERS = ("model.", "_fsdp_wrapped_module.", "_orig_mod.", "module.")

_DIT_FROM_DIFFUSERS = (
    (r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
    (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
    (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
    (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
    (r"^condition_embedder\.time_proj\.", "time_projection.1."),
    (r"^proj_out\.", "head.head."),
    (r"^scale_shift_table$", "head.modulation"),
    (r"\.scale_shift_table$", ".modulation"),
    (r"\.norm2\.", ".norm3."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"\.to_(q|k|v)\.", r".\1."),
    (r"\.to_out\.0\.", ".o."),
    (r"\.ffn\.net\.0\.proj\.", ".ffn.0."),
    (r"\.ffn\.net\.2\.", ".ffn.2."),
)
_VAE_FROM_DIFFUSERS = (
    (r"^post_quant_conv\.", "conv2."),
    (r"\.(resnets\.\d+)\.norm1\.", r".\1.residual.0."),
    (r"\.(resnets\.\d+)\.conv1\.", r".\1.residual.2."),
    (r"\.(resnets\.\d+)\.norm2\.", r".\1.residual.3."),
    (r"\.(resnets\.\d+)\.conv2\.", r".\1.residual.6."),
    (r"\.conv_shortcut\.", ".shortcut."),
    (r"^decoder\.conv_in\.", "decoder.conv1."),
    (r"^decoder\.norm_out\.", "decoder.head.0."),
    (r"^decoder\.conv_out\.", "decoder.head.2."),
    (r"\.mid_block\.resnets\.0\.", ".middle.0."),
    (r"\.mid_block\.attentions\.0\.", ".middle.1."),
    (r"\.mid_block\.resnets\.1\.", ".middle.2."),
)


def find(source: str, folder: Path | None) -> Path:
    """Where a source lies: within the config's `folder`; or hub:OWNER/NAME/PATH, downloaded if need be.

    Raises:
        CheckpointError: it is not there, or the hub can't be had; says what to do.
    """
    if not source.startswith(HUB):
        path = (folder or Path()) / Path(source).expanduser()
        if not path.exists():
            raise CheckpointError(f"weights: {path} is not there")
        return path
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - of the extra `wan`
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415
    except ImportError:
        raise CheckpointError(
            f"{source!r} needs the extra wan: pip install 'thinker-performer[wan]'"
        ) from None
    owner, name, *inside = source.removeprefix(HUB).split("/")
    wanted = "/".join(inside)
    try:
        snapshot = Path(
            snapshot_download(f"{owner}/{name}", allow_patterns=[wanted, f"{wanted}/*"] if wanted else None)
        )
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"weights: {source} can't be downloaded: {why}") from None
    if not (snapshot / wanted).exists():
        raise CheckpointError(f"weights: {owner}/{name} holds no {wanted}")
    return snapshot / wanted


def read_weights(path: Path) -> Weights:
    """All tensors of a file, or of a folder's safetensors files.

    Raises:
        CheckpointError: not there, damaged, or not a file of tensors.
    """
    try:
        if path.is_dir():
            return _of_folder(path)
        if path.suffix == ".safetensors":
            return load_file(path)
        return _tensors_of(
            torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)), path
        )
    except FileNotFoundError:
        raise CheckpointError(f"weights: {path} is not there") from None
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"weights: {path} can't be read: {why}") from None
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        raise CheckpointError(f"weights: {path} holds more than tensors, which is not read") from None


def _of_folder(path: Path) -> Weights:
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"weights: {path} holds no .safetensors file")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _tensors_of(content: object, path: Path) -> Weights:
    """The averaged generator of a training checkpoint, else the generator, else all."""
    if not isinstance(content, Mapping):
        raise CheckpointError(f"weights: {path} holds no state dict")
    chosen: Mapping[str, Tensor] = next((content[name] for name in _GENERATORS if name in content), content)
    weights = {}
    for name, tensor in chosen.items():
        bare = str(name)
        while (wrapper := next((w for w in _WRAPPERS if bare.startswith(w)), None)) is not None:
            bare = bare.removeprefix(wrapper)
        weights[bare.replace("_fsdp_wrapped_module.", "")] = tensor
    return weights


def dit_weights(weights: Weights) -> Weights:
    """Under the original's names, whichever layout they came in."""
    if not any(name.startswith("condition_embedder.") for name in weights):
        return weights
    return {_renamed(name, _DIT_FROM_DIFFUSERS): tensor for name, tensor in weights.items()}


def vae_decoder_weights(weights: Weights, config: VaeConfig) -> Weights:
    """The decoder's alone, under the original's names."""
    if any(name.startswith("decoder.conv_in.") for name in weights):
        weights = {
            _renamed(_flat_stage(name, config.residual_blocks + 2), _VAE_FROM_DIFFUSERS): tensor
            for name, tensor in weights.items()
        }
    return {name: tensor for name, tensor in weights.items() if name.startswith(("decoder.", "conv2."))}


def part_of(weights: Weights, prefix: str) -> Weights:
    """What lies under `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def load_strictly(module: nn.Module, weights: Weights, what: str, source: Path | str) -> None:
    """Load every tensor and no other.

    Raises:
        CheckpointError: the first name that is missing, too many, or of another shape; one line.
    """
    own = module.state_dict()
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    if missing:
        raise CheckpointError(_misfit(source, what, "has no", missing))
    if extra:
        raise CheckpointError(_misfit(source, what, "has besides", extra))
    if shapes:
        name = min(shapes)
        raise CheckpointError(
            f"weights: {source} does not fit the {what}: {name} is {list(weights[name].shape)},"
            f" the config makes it {list(own[name].shape)}"
        )
    module.load_state_dict(weights, assign=True)


def _misfit(source: Path | str, what: str, verb: str, names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"weights: {source} does not fit the {what}: it {verb} {names[0]}{more}"


def _renamed(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def _flat_stage(name: str, stages: int) -> str:
    """Diffusers nests what the original counts through: blocks of a resolution, then the change of it."""
    found = re.fullmatch(r"decoder\.up_blocks\.(\d+)\.(resnets|upsamplers)\.(\d+)\.(.*)", name)
    if found is None:
        return name
    number = int(found[3]) if found[2] == "resnets" else stages - 1
    inner = _renamed(f".resnets.0.{found[4]}", _VAE_FROM_DIFFUSERS).removeprefix(".resnets.0.")
    return f"decoder.upsamples.{int(found[1]) * stages + number}.{inner}"

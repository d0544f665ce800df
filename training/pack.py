"""Put the trained parts together into one checkpoint folder that the runtime loads."""

from pathlib import Path

from torch import Tensor, nn

from shared.checkpoint import FILE, config_digest, save_weights
from shared.models.pocket.network.weights import PocketWeights
from training.context import FINAL, TrainContext
from training.errors import TrainingError
from training.files import read, require_room
from training.loop import CHECKPOINT
from training.parts import TIMER
from training.thinker import listener_of

SOURCES = {  # part of the weights -> folders under runs/, the best first; a later part is within another
    "network": ("performer",),
    "network.listener": ("thinker",),
    "audio": ("audio-decoder", "audio-codec"),
    "video": ("video-decoder", "video-codec"),
}


def pack(context: TrainContext, out: Path) -> Path:
    """Write `out`/model.safetensors: trained parts of these runs, the others from the base checkpoint.

    Of a part that is still in training the averaged weights of its last checkpoint are taken.

    Raises:
        TrainingError: a part is neither trained nor in the base checkpoint, or the disk is full.
    """
    base = context.base_weights()
    weights = base or PocketWeights(context.model)
    require_room(out, 2 * _parameters(weights), "weights")
    for part in (*SOURCES, "timer"):
        found = _trained(context.runs, part)
        if found is None and base is None:
            raise TrainingError(
                f"pack: no trained {part} under {context.runs}, and no checkpoint to take it from"
            )
        module = weights.get_submodule(part)
        if found is not None:
            module.load_state_dict(module.state_dict() | found[0])
        origin = "the base checkpoint" if found is None else found[1]
        print(f"pack: {part:<16} {_parameters(module) / 1e6:6.2f} M parameters from {origin}")
    save_weights(weights, out, config_digest(context.model))
    size = (out / FILE).stat().st_size
    print(f"pack: wrote {out / FILE}, {size / 1e6:.1f} MB, {_parameters(weights) / 1e6:.2f} M parameters")
    return out


def _trained(runs: Path, part: str) -> tuple[dict[str, Tensor], str] | None:
    """The weights of a part and where they are from."""
    if part == "timer":
        path = runs / TIMER
        return (read(path), str(path)) if path.exists() else None
    for name in SOURCES[part]:
        final, checkpoint = runs / name / FINAL, runs / name / CHECKPOINT
        if final.exists():
            return _own(name, read(final)), str(final)
        if checkpoint.exists():
            saved = read(checkpoint)
            average = listener_of(saved["average"]) if name == "thinker" else saved["average"]
            return _own(name, average), f"{checkpoint} (in training, step {saved['step']})"
    return None


def _own(name: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a run has trained: that of the tower that speaks holds a listener too, which it left alone."""
    if name != "performer":
        return weights
    return {key: value for key, value in weights.items() if not key.startswith("listener.")}


def _parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())

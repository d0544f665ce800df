"""Train the eyes: from the camera's picture to who is there, where, and what colour is held up.

Each glance is told by itself, so the eyes are trained alone and before the tower that listens.

Shape suffixes: B batch, U units, H W picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.pocket.config import FRAMES_PER_UNIT, PocketConfig
from shared.models.pocket.dialogue.replies import Colour
from shared.models.pocket.network.encoders import SceneDetection, VisionEncoder
from training.data.vision.scene import watch
from training.loop import TrainConfig, train

PLACE_WEIGHT = 2.0
THING_WEIGHT = 1.5  # of a colour that is held up, against nothing held up
EXAM_CLIPS, EXAM_SEED = 300, 77


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionBatch:
    """Glances with the truth: frames [B, 4, 3, H, W] in [-1, 1], present [B], place [B, 2], colour [B]."""

    frames: Tensor
    present: Tensor
    place: Tensor
    colour: Tensor

    def to(self, device: str) -> VisionBatch:
        """A copy on a device."""
        return VisionBatch(
            frames=self.frames.to(device), present=self.present.to(device),
            place=self.place.to(device), colour=self.colour.to(device),
        )  # fmt: skip


def draw_vision(rng: np.random.Generator, clips: int, units: int, *, held_out: bool = False) -> VisionBatch:
    """Draw `clips` users for `units` units each; half of them are mirrored."""
    drawn = [watch(rng, units, held_out=held_out) for _ in range(clips)]

    def joined(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(scene, name) for scene in drawn]))

    pictures = joined("frames").permute(0, 3, 1, 2)
    frames = pictures.reshape(clips * units, FRAMES_PER_UNIT, *pictures.shape[1:]).float() / 127.5 - 1
    place = joined("place").float()
    mirrored = torch.from_numpy(rng.random(clips) < 0.5).repeat_interleave(units)
    frames = torch.where(mirrored[:, None, None, None, None], frames.flip(-1), frames)
    place[:, 0] = torch.where(mirrored, -place[:, 0], place[:, 0])
    return VisionBatch(
        frames=frames, present=joined("present").float(), place=place, colour=joined("colour").long()
    )  # fmt: skip


def vision_loss(seen: SceneDetection, views: VisionBatch) -> dict[str, Tensor]:
    """Cross-entropies of presence and colour, and the distance of the place of those who are there."""
    there = views.present > 0
    weight = torch.full((len(Colour),), THING_WEIGHT, device=views.colour.device)
    weight[Colour.NONE] = 1.0
    off = (seen.place[:, 0].float() - views.place).abs().sum(-1)
    return {
        "present": F.binary_cross_entropy_with_logits(seen.present[:, 0].float(), views.present),
        "colour": F.cross_entropy(seen.colour[:, 0].float(), views.colour, weight=weight),
        "place": PLACE_WEIGHT * (off * there).sum() / there.sum().clamp(min=1),
    }


def vision_accuracy(seen: SceneDetection, views: VisionBatch) -> dict[str, float]:
    """Right answers in percent: presence, any colour, the colour of what is held up; mean error of places."""
    there, held = views.present > 0, views.colour > 0
    right = seen.colour[:, 0].argmax(-1) == views.colour
    return {
        "present": 100 * float(((seen.present[:, 0] > 0) == there).float().mean()),
        "colour": 100 * float(right.float().mean()),
        "colour_of_things": 100 * float(right[held].float().mean()),
        "place_off": float((seen.place[:, 0] - views.place).abs()[there].mean()),
    }


def train_eyes(
    config: TrainConfig,
    sizes: PocketConfig,
    *,
    clips: int,
    resume: bool,
    start: VisionEncoder | None = None,
) -> VisionEncoder:
    """Train the eyes from `start` or from nothing, on glances at `clips` drawn users a step."""
    torch.manual_seed(config.seed)
    eyes = start or VisionEncoder(sizes.listener)
    exam = draw_vision(np.random.default_rng(EXAM_SEED), EXAM_CLIPS, 2, held_out=True)

    def losses(step: int) -> dict[str, Tensor]:
        views = draw_vision(np.random.default_rng((config.seed, step)), clips, 1).to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            seen = eyes.detect(eyes(views.frames))
        return vision_loss(seen, views)

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step
        assert isinstance(model, VisionEncoder)
        views = exam.to(config.device)
        marks = vision_accuracy(model.detect(model(views.frames)), views)
        return {f"held_out_{name}": value for name, value in marks.items()}

    average = train(config, eyes, losses, evaluate, resume=resume)
    eyes.load_state_dict(average)
    return eyes.eval()

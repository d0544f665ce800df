"""The listening tower unit by unit, as it is served, against whole scenes at once, as it is trained."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shared.models.cache import KVCache
from shared.models.layout import STEPS_PER_UNIT, KVBlock, Tower
from shared.models.pocket.dialogue.replies import Colour, Request
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.listener import SpeechDetection
from training.sequence import lay_sequence, writer

BuildFamily = Callable[..., PocketFamily]
UNITS = 11  # more than the rings hold
SAMPLES = 2560
ROUNDING = 5e-5  # fp32: sums in another order


@pytest.fixture
def family(tiny_family: BuildFamily) -> PocketFamily:
    return tiny_family(transformer={"kv_heads": 2}, listener={"heads": 2}, spans={"picture": 2, "sound": 3})


@pytest.fixture
def scene() -> tuple[Tensor, Tensor]:
    """Sound [1, N] and pictures [1, U, 4, 3, H, W] of a whole scene."""
    return 0.1 * torch.randn(1, UNITS * SAMPLES), torch.rand(1, UNITS, 4, 3, 64, 64) * 2 - 1


def at_once(family: PocketFamily, pcm_BN: Tensor, frames: Tensor) -> SpeechDetection:
    listener = family.weights.network.listener
    encoder = listener.audio_encoder
    sound_BTC = encoder(pcm_BN, encoder.init_state(1))
    picture, sound = listener.user_tokens(listener.vision_encoder(frames[0])[None, :, 0], sound_BTC)
    tokens = torch.cat([picture[:, :, None], sound.unflatten(1, (UNITS, -1))], dim=2)
    sequence = lay_sequence(family.layout, Tower.LISTENING, UNITS)
    out = listener.run(tokens.flatten(1, 2), sequence.kept_steps_R, writer(sequence, []))
    return listener.detect(out.unflatten(1, (UNITS, -1))[:, :, 1:].flatten(1, 2))


def streamed(family: PocketFamily, pcm_BN: Tensor, frames: Tensor) -> list[SpeechDetection]:
    listener = family.weights.network.listener
    stream = listener.audio_encoder.init_state(1)
    cache = KVCache(family.layout, family.config.transformer, dtype=torch.float32, device="cpu")
    made = []
    for unit, pcm in enumerate(pcm_BN.split(SAMPLES, dim=1)):
        encoded = listener.vision_encoder(frames[:, unit]), listener.audio_encoder(pcm, stream)
        tokens = torch.cat(listener.user_tokens(*encoded), 1)
        steps_T = family.layout.steps(KVBlock.STATE, unit, Tower.LISTENING)
        attend = cache.attend(cache.writing(KVBlock.STATE, [0], [unit], Tower.LISTENING))
        made.append(listener.detect(listener.run(tokens, steps_T, attend)[:, 1:]))
    return made


@torch.no_grad()
def test_streamed_equals_at_once(family: PocketFamily, scene: tuple[Tensor, Tensor]) -> None:
    whole, units = at_once(family, *scene), streamed(family, *scene)
    for name in ("request", "voice"):
        joined = torch.cat([getattr(unit, name) for unit in units], dim=1)
        torch.testing.assert_close(joined, getattr(whole, name), atol=ROUNDING, rtol=1e-4)


@torch.no_grad()
def test_sound_streamed_equals_sound_offline(family: PocketFamily, scene: tuple[Tensor, Tensor]) -> None:
    encoder, pcm_BN = family.weights.network.listener.audio_encoder, scene[0]
    whole = encoder(pcm_BN, encoder.init_state(1))
    for piece in (640, 1920, SAMPLES):
        state = encoder.init_state(1)
        parts = [encoder(part, state) for part in pcm_BN.split(piece, dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_what_is_detected_has_the_shapes_that_it_says(
    family: PocketFamily, scene: tuple[Tensor, Tensor]
) -> None:
    speech, encoder = at_once(family, *scene), family.weights.network.listener.vision_encoder
    assert speech.request.shape == (1, UNITS * STEPS_PER_UNIT, len(Request))
    assert speech.voice.shape == (1, UNITS * STEPS_PER_UNIT)
    detected = encoder.detect(encoder(scene[1][0])[None, :, 0])
    assert detected.present.shape == (1, UNITS)
    assert detected.place.shape == (1, UNITS, 2)
    assert detected.colour.shape == (1, UNITS, len(Colour))
    assert detected.place.abs().max() <= 1


@pytest.mark.parametrize("changed", ["sound", "picture"])
@torch.no_grad()
def test_nothing_of_the_future_is_detected(
    family: PocketFamily, scene: tuple[Tensor, Tensor], changed: str
) -> None:
    unit, (pcm_BN, frames) = 6, scene
    one = at_once(family, pcm_BN, frames)
    if changed == "sound":
        pcm_BN = pcm_BN.clone()
        pcm_BN[:, unit * SAMPLES :] *= -0.5
    else:
        frames = frames.clone()
        frames[:, unit:] *= -0.5
    two = at_once(family, pcm_BN, frames)
    now = unit * STEPS_PER_UNIT
    for a, b in ((one.request, two.request), (one.voice, two.voice)):
        torch.testing.assert_close(a[:, :now], b[:, :now], atol=ROUNDING, rtol=1e-4)
        assert not torch.allclose(a[:, now:], b[:, now:], atol=1e-3)

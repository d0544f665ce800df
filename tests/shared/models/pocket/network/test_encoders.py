import torch
from torch import nn

from shared.models.onednn import pack
from shared.models.pocket.config import ListenerConfig
from shared.models.pocket.network.encoders import AudioEncoder, VisionEncoder

UNIT_SAMPLES = 2560


def new_vision_encoder() -> VisionEncoder:
    """With norms that have seen something."""
    vision = VisionEncoder(ListenerConfig())
    for norm in (*vision.down_norms, *vision.mix_norms):
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
    return vision.eval().requires_grad_(False)


def test_hearing_unit_by_unit_equals_hearing_at_once() -> None:
    audio = AudioEncoder(ListenerConfig()).requires_grad_(False)
    pcm_BN = 0.1 * torch.randn(2, 4 * UNIT_SAMPLES)
    state = audio.init_state(2)
    streamed = [audio(unit, state) for unit in pcm_BN.split(UNIT_SAMPLES, dim=1)]
    assert [tokens.shape for tokens in streamed] == [(2, 4, 256)] * 4
    # fp32: matrix kernels sum in an order that depends on the length
    torch.testing.assert_close(
        torch.cat(streamed, dim=1), audio(pcm_BN, audio.init_state(2)), atol=1e-5, rtol=1e-4
    )


@torch.inference_mode()
def test_packed_encoders_give_the_same_whoever_shares_the_batch(dtype: torch.dtype) -> None:
    encoders = nn.ModuleList([AudioEncoder(ListenerConfig()), new_vision_encoder()])
    pcm_BN, frames = 0.1 * torch.randn(3, UNIT_SAMPLES), 2 * torch.rand(3, 4, 3, 64, 64) - 1
    expected = encoders[0](pcm_BN, encoders[0].init_state(3)), encoders[1](frames)
    pack(encoders, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    audio, vision = encoders
    made = audio(pcm_BN, audio.init_state(3)), vision(frames)
    for one, two in zip(made, expected, strict=True):
        assert (one - two).norm() < tolerance * two.norm()
    for row in range(3):
        alone = slice(row, row + 1)
        assert torch.equal(audio(pcm_BN[alone], audio.init_state(1))[0], made[0][row])
        assert torch.equal(vision(frames[alone])[0], made[1][row])


@torch.inference_mode()
def test_a_packed_vision_encoder_can_be_packed_again() -> None:
    encoders = nn.ModuleList([new_vision_encoder()])
    pack(encoders)
    frames = 2 * torch.rand(1, 4, 3, 64, 64) - 1
    before = encoders[0](frames)
    pack(encoders)
    assert torch.equal(encoders[0](frames), before)

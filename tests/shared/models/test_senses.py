import torch
from torch import nn

from shared.models.packed import pack
from shared.models.pocket.config import SensesConfig
from shared.models.pocket.senses import Ears, Eyes

UNIT_SAMPLES = 2560


def new_eyes() -> Eyes:
    """With norms that have seen something."""
    eyes = Eyes(SensesConfig())
    for norm in (*eyes.down_norms, *eyes.mix_norms):
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 2)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
    return eyes.eval().requires_grad_(False)


def test_hearing_unit_by_unit_equals_hearing_at_once() -> None:
    ears = Ears(SensesConfig()).requires_grad_(False)
    pcm_BN = 0.1 * torch.randn(2, 4 * UNIT_SAMPLES)
    state = ears.init_state(2)
    streamed = [ears(unit, state) for unit in pcm_BN.split(UNIT_SAMPLES, dim=1)]
    assert [tokens.shape for tokens in streamed] == [(2, 4, 256)] * 4
    # fp32: matrix kernels sum in an order that depends on the length
    torch.testing.assert_close(
        torch.cat(streamed, dim=1), ears(pcm_BN, ears.init_state(2)), atol=1e-5, rtol=1e-4
    )


@torch.inference_mode()
def test_packed_senses_tell_the_same_whoever_shares_the_batch(dtype: torch.dtype) -> None:
    senses = nn.ModuleList([Ears(SensesConfig()), new_eyes()])
    pcm_BN, frames = 0.1 * torch.randn(3, UNIT_SAMPLES), 2 * torch.rand(3, 4, 3, 64, 64) - 1
    expected = senses[0](pcm_BN, senses[0].init_state(3)), senses[1](frames)
    pack(senses, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    ears, eyes = senses
    made = ears(pcm_BN, ears.init_state(3)), eyes(frames)
    for one, two in zip(made, expected, strict=True):
        assert (one - two).norm() < tolerance * two.norm()
    for row in range(3):
        alone = slice(row, row + 1)
        assert torch.equal(ears(pcm_BN[alone], ears.init_state(1))[0], made[0][row])
        assert torch.equal(eyes(frames[alone])[0], made[1][row])


@torch.inference_mode()
def test_packed_eyes_can_be_packed_again() -> None:
    senses = nn.ModuleList([new_eyes()])
    pack(senses)
    frames = 2 * torch.rand(1, 4, 3, 64, 64) - 1
    before = senses[0](frames)
    pack(senses)
    assert torch.equal(senses[0](frames), before)

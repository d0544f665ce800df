from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from shared.errors import DeviceError
from shared.models.onednn import PackedConv2d, PackedDepthwise, PackedLinear, PackedPointwise, pack

# Each way of adding up fp32 products has its own rounding; bf16 keeps 8 bits of each factor.
TOLERANCE = {torch.float32: {"atol": 1e-5, "rtol": 1e-5}, torch.bfloat16: {"atol": 0.05, "rtol": 0.02}}
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], type[nn.Module]]] = {
    "linear": (lambda: nn.Linear(24, 33), (7, 24), PackedLinear),
    "no bias": (lambda: nn.Linear(24, 33, bias=False), (7, 24), PackedLinear),
    "3x3": (lambda: nn.Conv2d(16, 24, 3, padding=1), (16, 8, 12), PackedConv2d),
    "no bias, stride": (
        lambda: nn.Conv2d(12, 32, 3, stride=2, padding=1, bias=False),
        (12, 8, 8),
        PackedConv2d,
    ),
    "2x2": (lambda: nn.Conv2d(6, 8, 2, stride=2), (6, 8, 8), PackedConv2d),
    "wide": (lambda: nn.Linear(1500, 33), (1500,), PackedLinear),
    "1x1": (lambda: nn.Conv2d(16, 24, 1), (16, 4, 6), PackedPointwise),
    "depthwise": (lambda: nn.Conv1d(16, 16, 5, groups=16), (16, 9), PackedDepthwise),
}


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def layer(request: pytest.FixtureRequest) -> tuple[nn.Sequential, Tensor, type[nn.Module]]:
    make, shape, kind = request.param
    x = torch.randn(6, *shape)
    if len(shape) == 2:  # channels next to each other, as the causal convolutions keep them
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    return nn.Sequential(make()).requires_grad_(False), x, kind


@torch.inference_mode()
def test_a_packed_layer_gives_what_the_layer_gives(
    layer: tuple[nn.Sequential, Tensor, type[nn.Module]], dtype: torch.dtype
) -> None:
    module, x, kind = layer
    expected = module(x)
    pack(module, dtype)
    assert isinstance(module[0], kind)
    assert module(x).dtype == torch.float32
    torch.testing.assert_close(module(x), expected, **TOLERANCE[dtype])


@torch.inference_mode()
def test_a_row_does_not_depend_on_its_batch(
    layer: tuple[nn.Sequential, Tensor, type[nn.Module]], dtype: torch.dtype
) -> None:
    module, x, _ = layer
    pack(module, dtype)
    whole = module(x)
    for pieces in (1, 2, 4):
        assert torch.equal(torch.cat([module(piece) for piece in x.split(pieces)]), whole)


@torch.inference_mode()
def test_a_picture_may_change_its_size() -> None:
    module = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1))
    pictures = [torch.randn(1, 16, size, size) for size in (8, 64, 8, 4)]
    expected = [module(x) for x in pictures]
    pack(module)
    for x, y in zip(pictures, expected, strict=True):
        torch.testing.assert_close(module(x), y, **TOLERANCE[torch.float32])


def test_layers_deep_inside_are_found_and_others_left() -> None:
    module = nn.Sequential(
        nn.ModuleList([nn.Sequential(nn.Linear(2, 2))]), nn.Conv1d(4, 4, 3), nn.LayerNorm(4)
    )
    left = module[1], module[2]
    for _ in range(2):  # what is packed already stays
        pack(module)
        assert isinstance(module[0][0][0], PackedLinear)
        assert (module[1], module[2]) == left


def test_a_module_may_bring_its_own_form() -> None:
    class Own(nn.Module):
        def packed(self, dtype: torch.dtype) -> nn.Module:
            return nn.Flatten() if dtype == torch.float32 else self

    module = nn.Sequential(nn.Sequential(Own()))
    pack(module)
    assert isinstance(module[0][0], nn.Flatten)


def test_elsewhere_than_on_a_cpu_nothing_is_replaced() -> None:
    module = nn.Sequential(nn.Linear(2, 2, device="meta"))
    pack(module)
    assert isinstance(module[0], nn.Linear)


def test_a_processor_without_bfloat16_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(DeviceError, match=r"bfloat16: .* use float32"):
        pack(nn.Sequential(nn.Linear(2, 2)), torch.bfloat16)

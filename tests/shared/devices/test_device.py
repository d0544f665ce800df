"""The CPU: everything is done when it returns."""

import pytest
import torch
from torch import nn

from shared.devices import Device, device
from shared.errors import DeviceError


def test_copies_and_events() -> None:
    cpu = Device()
    x = torch.arange(6.0).view(2, 3)
    with cpu.aside():
        out, copied = cpu.fetch(x), cpu.event()
    copied.gate()
    copied.wait()
    assert copied.done()
    assert out is x


def test_captured_work_is_the_work_itself() -> None:
    cpu = Device()
    assert cpu.captured(torch.relu, [torch.zeros(2)]) is torch.relu
    seen: list[int] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return 2 * x

    bucketed = cpu.captured_in(4, work, lambda size: [torch.zeros(size)])
    assert bucketed(torch.ones(3)).tolist() == [2, 2, 2]
    assert seen == [3], "nothing is recorded, nothing is padded"
    with pytest.raises(DeviceError, match="a batch of 5"):
        bucketed(torch.ones(5))


def test_room_is_asked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device()
    assert cpu.headroom_bytes() > 10_000_000
    cpu.require(1000, "a thousand bytes")
    monkeypatch.setattr(device, "host_headroom", lambda: 1_500_000_000)
    with pytest.raises(DeviceError) as caught:
        cpu.require(12_000_000_000, "the weights")
    assert str(caught.value).startswith("cpu: the weights: 12.00 GB are needed and 1.50 GB free; ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ({"avx2", "avx512f"}, torch.float32),
        ({"avx512_bf16"}, torch.bfloat16),
        ({"amx_bf16"}, torch.bfloat16),
    ],
)
def test_bf16_where_the_processor_has_it(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(device, "cpu_flags", lambda: frozenset(flags))
    assert Device().dtype is dtype
    assert Device(dtype="float32").dtype is torch.float32


def test_a_module_is_made_ready() -> None:
    module = Device(dtype="bfloat16").optimised(nn.Linear(2, 2))
    assert module.weight.dtype is torch.bfloat16
    assert not module.weight.requires_grad
    assert not module.training

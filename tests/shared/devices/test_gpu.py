"""The real thing, where there is one."""

import pytest
import torch

from shared.devices import Device, check_device, open_device
from shared.errors import DeviceError

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["cuda", "xpu"])
def device(request: pytest.FixtureRequest) -> Device:
    try:
        check_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))
    return open_device(request.param)


def test_a_copy_to_the_host(device: Device) -> None:
    x = torch.arange(1000, device=device.torch, dtype=torch.float32)
    out = device.fetch(x)
    assert out.is_pinned()
    assert out.equal(x.cpu())


def test_room_is_known(device: Device) -> None:
    assert device.name
    device.require(1 << 20, "a megabyte")
    with pytest.raises(DeviceError, match="a petabyte"):
        device.require(1 << 50, "a petabyte")


def test_an_event_is_done_when_it_was_waited_for(device: Device) -> None:
    x = torch.randn(1024, 1024, device=device.torch)
    for _ in range(10):
        x = (x @ x).tanh()
    ended = device.event()
    ended.wait()
    assert ended.done()


@torch.inference_mode()
def test_captured_work_equals_the_work(device: Device) -> None:
    weight = torch.randn(64, 64, device=device.torch)
    kept = torch.zeros(4, 64, device=device.torch)

    def work(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x @ weight)
        kept.index_copy_(0, rows, y)
        return y

    def examples(size: int) -> list[torch.Tensor]:
        rows = torch.arange(size, device=device.torch)
        return [torch.zeros(size, 64, device=device.torch), rows]

    captured = device.captured_in(4, work, examples)
    for size in (4, 1, 3, 2):
        x, rows = torch.randn(size, 64, device=device.torch), torch.arange(size, device=device.torch)
        made = captured(x, rows)
        assert isinstance(made, torch.Tensor)
        torch.testing.assert_close(made, torch.tanh(x @ weight))
        torch.testing.assert_close(kept[:size], made)

"""From what the user calls a device to the device."""

import pytest
import torch

from shared.devices import check_device, open_device
from shared.errors import ConfigError, DeviceError


def test_the_cpu() -> None:
    device = open_device("cpu")
    assert (device.kind, device.index, device.torch) == ("cpu", 0, torch.device("cpu"))
    assert str(device) == "cpu"
    assert device.name
    assert open_device("cpu:0").torch == device.torch


@pytest.mark.parametrize(("choice", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_dtype_is_a_choice(choice: str, dtype: torch.dtype) -> None:
    assert open_device("cpu", dtype=choice).dtype is dtype


@pytest.mark.parametrize("spec", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu 0", "xpu:1:2", "mps"])
def test_what_is_no_device(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"must be cpu, cuda:N or xpu:N") as caught:
        open_device(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["cpu:1", "cuda:99", "xpu:99"])
def test_what_is_not_there(spec: str) -> None:
    with pytest.raises(DeviceError, match=rf"--device {spec}: this torch .* sees (no|\d+) ") as caught:
        check_device(spec)
    assert "\n" not in str(caught.value)

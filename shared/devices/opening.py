"""From what the user calls a device to the device, or one line that says why there is none."""

from __future__ import annotations

import torch

from shared.devices.accelerator import Cuda, Xpu
from shared.devices.device import Device
from shared.errors import ConfigError, DeviceError


def open_device(spec: str, *, dtype: str = "auto", compiles: bool = False) -> Device:
    """The device `spec`: cpu, cuda[:N] or xpu[:N]; see `Device` for the rest.

    Raises:
        ConfigError: that is no device.
        DeviceError: this machine, or this torch, has none.
    """
    kind, index = check_device(spec)
    made: dict[str, type[Cuda] | type[Xpu]] = {"cuda": Cuda, "xpu": Xpu}
    return made.get(kind, Device)(index, dtype=dtype, compiles=compiles)


def check_device(spec: str) -> tuple[str, int]:
    """Kind and index of `spec`; raises as `open_device` does, but touches no device."""
    kind, _, index = spec.partition(":")
    counts = {"cpu": lambda: 1, "cuda": torch.cuda.device_count, "xpu": torch.xpu.device_count}
    if kind not in counts or not (index.isdecimal() or spec == kind):
        raise ConfigError(f"--device {spec}: must be cpu, cuda:N or xpu:N")
    count = counts[kind]()
    if int(index or 0) >= count:
        raise DeviceError(
            f"--device {spec}: this torch ({torch.__version__}) sees {count or 'no'} {kind} device"
        )
    return kind, int(index or 0)

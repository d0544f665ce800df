"""The devices that models run on. The only package that says `torch.cuda` or `torch.xpu`.

device.py       what every device can do, by itself the CPU; from "cuda:1" to a device, or why there is none
accelerator.py  CUDA and XPU; imported where one is opened, as is ipex.py
graphs.py       captured work and its buckets
memory.py       how much the host still has
cores.py        threads, and a core of its own for a process
cpu.py          the processor's name and abilities
"""

from shared.devices.cores import claim_core, settle_threads
from shared.devices.device import Device, Event, check_device, open_device

__all__ = [
    "Device",
    "Event",
    "check_device",
    "claim_core",
    "open_device",
    "settle_threads",
]

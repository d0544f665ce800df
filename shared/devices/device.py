"""What every device can do, and how one is opened. `Device` itself is the CPU: nothing is asynchronous."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from shared.devices.cpu import cpu_flags, cpu_model
from shared.devices.graphs import InBuckets, Work, bucket_sizes
from shared.devices.memory import host_headroom
from shared.errors import ConfigError, DeviceError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Event(Protocol):
    """A point in the work that a device was given."""

    def wait(self) -> None:
        """Hold the calling thread until the device has got here."""

    def gate(self) -> None:
        """Hold what the device is given from now on, but not the calling thread."""

    def done(self) -> bool:
        """Whether the device has got here."""


class HostEvent:
    """On the CPU everything before it is done."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def gate(self) -> None:
        """Nothing to hold."""

    def done(self) -> bool:
        return True


class Device:
    """Where a process computes.

    Args:
        dtype: what models compute in: "float32", "bfloat16", or "auto" for what is fastest here.

    Attributes:
        kind: "cpu", "cuda" or "xpu".
        index: which of them.
        torch: the same for torch.
        dtype: what models compute in.
    """

    kind = "cpu"

    def __init__(self, index: int = 0, *, dtype: str = "auto") -> None:
        self.index = index
        self.torch = self._torch_device()
        self.dtype = self._best_dtype() if dtype == "auto" else DTYPES[dtype]

    def __str__(self) -> str:
        return str(self.torch)

    @property
    def name(self) -> str:
        return cpu_model()

    def _torch_device(self) -> torch.device:
        return torch.device("cpu")

    def _best_dtype(self) -> torch.dtype:
        # With these a model of 256 dims takes 0.8 of the time of float32, one of 896 half; without, longer.
        return torch.bfloat16 if {"avx512_bf16", "amx_bf16"} & cpu_flags() else torch.float32

    def headroom_bytes(self) -> int:
        """Memory that can still be allocated."""
        return host_headroom()

    def require(self, num_bytes: int, what: str) -> None:
        """Make sure that there is room, before anything is allocated.

        Without this an XPU whose memory runs out hangs, and on a CPU the kernel kills some process.

        Raises:
            DeviceError: there isn't; names `what` (such as "the weights"), and both sizes.
        """
        there = self.headroom_bytes()
        if num_bytes > there:
            raise DeviceError(
                f"{self}: {what}: {num_bytes / 1e9:.2f} GB are needed and {there / 1e9:.2f} GB free; "
                "end what else uses its memory, or take a smaller config or fewer sessions"
            )

    def event(self) -> Event:
        """Mark this point of the current work."""
        return HostEvent()

    def aside(self) -> AbstractContextManager[None]:
        """What is begun inside goes its own way, after what was begun before and beside what comes next.

        The next work is ordered after it by the `gate` of an `event` made inside.
        """
        return nullcontext()

    def fetch(self, x: Tensor) -> Tensor:
        """`x` in host memory that is the caller's own; on a CPU `x` itself. Waits for it."""
        return x

    def captured(self, work: Work, examples: Sequence[Tensor]) -> Work:
        """Record `work` once, so that a call costs one launch; on the CPU it is `work` itself.

        Args:
            work: from tensors to tensors, always the same kernels, no synchronising inside. It is run a few
                times on `examples`, and then writes what it writes in place. Tensors that it finds elsewhere
                must stay where they are.
            examples: one for each argument; calls must have the same shapes and dtypes.

        Returns:
            The same function, whose results are overwritten by its next call.
        """
        del examples
        return work

    def captured_in(self, largest: int, work: Work, examples: Callable[[int], Sequence[Tensor]]) -> InBuckets:
        """`work` captured for sizes of the first dim up to `largest`; `examples(size)` are its arguments."""
        # The largest first: the others then find room in its scratch memory.
        recorded = {size: self.captured(work, examples(size)) for size in reversed(bucket_sizes(largest))}
        return InBuckets(recorded, pads=self.kind != "cpu")

    def optimised(self, module: ModuleT) -> ModuleT:
        """The module on this device and in its dtype, for inference."""
        return module.to(self.torch, self.dtype).eval().requires_grad_(False)


def open_device(spec: str, *, dtype: str = "auto") -> Device:
    """The device `spec`: cpu, cuda[:N] or xpu[:N]; see `Device` for the rest.

    Raises:
        ConfigError: that is no device.
        DeviceError: this machine, or this torch, has none.
    """
    kind, index = check_device(spec)
    if kind == "cpu":
        return Device(index, dtype=dtype)
    from shared.devices.accelerator import Cuda, Xpu  # noqa: PLC0415 - imported when used

    return (Cuda if kind == "cuda" else Xpu)(index, dtype=dtype)


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

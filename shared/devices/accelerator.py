"""CUDA and XPU: streams, pinned copies, graphs. torch has one interface for both.

Imported where one is opened, and nowhere else.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from shared.devices import ipex
from shared.devices.device import Device, Event, ModuleT
from shared.devices.graphs import Replay, Work

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3  # before a capture: libraries allocate and choose kernels in the first calls


class StreamEvent:
    """An event on the stream that was current when it was made."""

    def __init__(self, api: Any, index: int) -> None:
        self._api = api
        self._index = index
        self._event = api.Event()
        self._event.record(api.current_stream(index))

    def wait(self) -> None:
        self._event.synchronize()

    def gate(self) -> None:
        self._api.current_stream(self._index).wait_event(self._event)

    def done(self) -> bool:
        return bool(self._event.query())


class Accelerator(Device):
    """A device with streams; `api` is `torch.cuda` or `torch.xpu`."""

    def __init__(self, api: Any, index: int = 0, *, dtype: str = "auto") -> None:
        self._api = api
        super().__init__(index, dtype=dtype)
        self._side: Any = None
        self._pool: Any = None

    @property
    def name(self) -> str:
        return str(self._api.get_device_name(self.index))

    def _torch_device(self) -> torch.device:
        return torch.device(self.kind, self.index)

    def _best_dtype(self) -> torch.dtype:
        with self._api.device(self.index):
            native = self._api.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float32

    def headroom_bytes(self) -> int:
        """What the driver has left, and what torch keeps of it without using it."""
        api, index = self._api, self.index
        unused = api.memory_reserved(index) - api.memory_allocated(index)
        try:
            free, _ = api.mem_get_info(index)
        except RuntimeError:  # some integrated GPUs don't tell; then what this process doesn't hold
            free = api.get_device_properties(index).total_memory - api.memory_reserved(index)
        return int(free + unused)

    def event(self) -> Event:
        return StreamEvent(self._api, self.index)

    @contextmanager
    def aside(self) -> Iterator[None]:
        api = self._api
        if self._side is None:
            self._side = api.Stream(self.index)
        self._side.wait_stream(api.current_stream(self.index))
        with api.stream(self._side):
            yield

    def fetch(self, x: Tensor) -> Tensor:
        """On the side stream, to pinned memory."""
        out = self._pinned(x)
        with self.aside():
            out.copy_(x, non_blocking=True)
            x.record_stream(self._side)  # or the allocator could give its memory away too soon
            copied = self.event()
        copied.wait()
        return out

    def _pinned(self, x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, pin_memory=True)

    @torch.inference_mode()
    def captured(self, work: Work, examples: Sequence[Tensor]) -> Work:
        with self._api.device(self.index):
            inputs = [example.clone() for example in examples]
            stream = self._api.Stream(self.index)
            stream.wait_stream(self._api.current_stream(self.index))
            with self._api.stream(stream):
                for _ in range(WARM_UP_RUNS):
                    work(*inputs)
            self._api.current_stream(self.index).wait_stream(stream)
            graph = self._new_graph()
            if self._pool is None:
                # One for all graphs of the device: they never run at once, so they can share scratch memory.
                self._pool = self._api.graph_pool_handle()
            with self._recording(graph, stream):
                outputs = work(*inputs)
            return Replay(inputs, outputs, graph.replay)

    def _new_graph(self) -> Any:
        raise NotImplementedError

    def _recording(self, graph: Any, stream: Any) -> Any:
        return self._api.graph(graph, pool=self._pool, stream=stream)


class Cuda(Accelerator):
    """An NVIDIA or AMD GPU."""

    kind = "cuda"

    def __init__(self, index: int = 0, *, dtype: str = "auto") -> None:
        super().__init__(torch.cuda, index, dtype=dtype)

    def _new_graph(self) -> Any:
        return self._api.CUDAGraph()

    def _recording(self, graph: Any, stream: Any) -> Any:
        # Only this thread is recorded: a link's thread may copy meanwhile.
        mode = "thread_local"
        return self._api.graph(graph, pool=self._pool, stream=stream, capture_error_mode=mode)


class Xpu(Accelerator):
    """An Intel GPU."""

    kind = "xpu"

    def __init__(self, index: int = 0, *, dtype: str = "auto") -> None:
        super().__init__(torch.xpu, index, dtype=dtype)

    def captured(self, work: Work, examples: Sequence[Tensor]) -> Work:
        """Record `work` where this torch has graphs for XPU; else it is `work` itself."""
        if hasattr(self._api, "XPUGraph"):
            return super().captured(work, examples)
        log.info("%s: torch %s has no graphs for it: every kernel is launched", self, torch.__version__)
        return work

    def _new_graph(self) -> Any:
        return self._api.XPUGraph()

    def optimised(self, module: ModuleT) -> ModuleT:
        """Also through IPEX, where one that fits is installed."""
        return ipex.optimise(super().optimised(module), self.dtype)

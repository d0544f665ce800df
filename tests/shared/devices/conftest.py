"""A stand-in for `torch.cuda`, which does its work on the CPU and writes down what it was asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from shared.devices.accelerator import Accelerator


class Stream:
    """Named by order of creation; the current one at the start is `main`."""

    def __init__(self, api: "RecordingApi", name: str) -> None:
        self._api, self.name = api, name

    def wait_stream(self, other: "Stream") -> None:
        self._api.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: "Event") -> None:
        self._api.log.append(f"{self.name} waits for event on {event.stream}")


class Event:
    """An event on a stream, by name."""

    def __init__(self, api: "RecordingApi") -> None:
        self._api, self.stream = api, ""

    def record(self, stream: Stream) -> None:
        self.stream = stream.name
        self._api.log.append(f"event on {stream.name}")

    def synchronize(self) -> None:
        self._api.log.append(f"host waits for event on {self.stream}")

    def query(self) -> bool:
        return False


class RecordingApi:
    """What `Accelerator` uses of `torch.cuda`."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.free, self.reserved, self.allocated = 1000, 300, 200
        self.tells_free = True
        self._streams = [Stream(self, "main")]
        self._made = 0

    def Stream(self, device: int) -> Stream:  # noqa: N802 - as torch has it
        self._made += 1
        return Stream(self, f"stream {self._made} of {device}")

    def Event(self) -> Event:  # noqa: N802
        return Event(self)

    def current_stream(self, device: int) -> Stream:
        return self._streams[-1]

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self._streams.append(stream)
        yield
        self._streams.pop()

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        yield

    @contextmanager
    def graph(self, graph: object, *, pool: str, stream: Stream) -> Iterator[None]:
        self.log.append(f"capture begins in {pool}")
        with self.stream(stream):
            yield
        self.log.append("capture ends")

    def graph_pool_handle(self) -> str:
        self.log.append("a new pool")
        return "pool"

    def is_bf16_supported(self, *, including_emulation: bool) -> bool:
        return not including_emulation

    def get_device_name(self, index: int) -> str:
        return f"Recorder {index}"

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=2000)

    def mem_get_info(self, index: int) -> tuple[int, int]:
        if not self.tells_free:
            raise RuntimeError("this device doesn't support querying the available free memory")
        return self.free, 2000

    def memory_reserved(self, index: int) -> int:
        return self.reserved

    def memory_allocated(self, index: int) -> int:
        return self.allocated


class RecordingDevice(Accelerator):
    """An accelerator whose memory is the host's and whose graphs do nothing when replayed."""

    kind = "recorder"

    def __init__(self, api: RecordingApi, **options: Any) -> None:
        super().__init__(api, 1, **options)

    def _torch_device(self) -> torch.device:
        return torch.device("cpu")

    def _pinned(self, x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def _new_graph(self) -> "Graph":
        return Graph(self._api)


class Graph:
    def __init__(self, api: RecordingApi) -> None:
        self._api = api

    def replay(self) -> None:
        self._api.log.append("replay")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    api = RecordingApi()
    monkeypatch.setattr(Tensor, "record_stream", lambda _, stream: api.log.append(f"kept for {stream.name}"))
    return api


@pytest.fixture
def make_recorder(api: RecordingApi) -> Callable[..., RecordingDevice]:
    return lambda **options: RecordingDevice(api, **options)

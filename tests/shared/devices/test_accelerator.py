"""Order of work on an accelerator, as a recording stand-in sees it; the real thing is in test_gpu.py."""

from collections.abc import Callable

import pytest
import torch

from shared.devices import Device
from shared.errors import DeviceError


def test_a_copy_to_the_host_goes_beside_the_current_work(make_recorder: Callable[..., Device], api) -> None:
    device = make_recorder()
    x, side = torch.arange(4.0), "stream 1 of 1"
    assert device.fetch(x).equal(x)
    waits = f"{side} waits for main"
    assert api.log == [waits, f"kept for {side}", f"event on {side}", f"host waits for event on {side}"]
    device.fetch(x)
    assert api.log[4] == waits, "the same stream for all copies"


def test_an_event_holds_the_device_or_the_host(make_recorder: Callable[..., Device], api) -> None:
    event = make_recorder().event()
    event.gate()
    event.wait()
    assert not event.done()
    assert api.log == ["event on main", "main waits for event on main", "host waits for event on main"]


def test_headroom_counts_what_torch_holds_unused(make_recorder: Callable[..., Device], api) -> None:
    device = make_recorder()
    assert device.headroom_bytes() == 1000 + 300 - 200
    api.tells_free = False
    assert device.headroom_bytes() == 2000 - 300 + 100
    device.require(1800, "the weights")
    with pytest.raises(
        DeviceError, match=r"^cpu: 8 sessions: 0\.00 GB are needed and 0\.00 GB free; end what"
    ):
        device.require(1801, "8 sessions")


def test_bf16_where_the_device_has_it(make_recorder: Callable[..., Device]) -> None:
    assert make_recorder().dtype is torch.bfloat16
    assert make_recorder(dtype="float32").dtype is torch.float32
    assert make_recorder().name == "Recorder 1"


def test_a_capture_warms_up_aside_and_shares_one_pool(make_recorder: Callable[..., Device], api) -> None:
    device = make_recorder()
    runs: list[int] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        runs.append(len(api.log))
        return x + 1

    captured = device.captured(work, [torch.zeros(2)])
    stream = "stream 1 of 1"
    assert api.log == [
        f"{stream} waits for main", f"main waits for {stream}", "a new pool", "capture begins in pool",
        "capture ends",
    ]  # fmt: skip
    assert runs == [1, 1, 1, 4]
    captured(torch.ones(2))
    assert api.log[5:] == ["replay"]
    assert len(runs) == 4
    device.captured(work, [torch.zeros(2)])
    assert api.log.count("a new pool") == 1


def test_all_buckets_are_captured(make_recorder: Callable[..., Device], api) -> None:
    sizes: list[int] = []

    def work(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return x

    device = make_recorder()
    bucketed = device.captured_in(4, work, lambda size: [torch.zeros(size, 3)])
    assert sorted(set(sizes)) == [1, 2, 4]
    assert bucketed(torch.ones(3, 3)).shape == (3, 3)
    assert api.log[-1] == "replay"

"""One of two ranks of the process-wide group, with globals STORE (a file) and RANK."""

from datetime import timedelta

import torch
import torch.distributed as dist

from shared.links.collective.ccl.group import register
from shared.links.collective.ccl.library import forget_names


def run(path: str, rank: int) -> None:
    register()
    store = dist.FileStore(path, 2)  # type: ignore[attr-defined]
    dist.init_process_group("ccl", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    numbers, expected = torch.zeros(1000), torch.arange(1000.0)
    if rank == 0:
        dist.send(expected, 1)
        dist.recv(numbers, 1)
        assert torch.equal(numbers, 2 * expected)
    else:
        dist.recv(numbers, 0)
        assert torch.equal(numbers, expected)
        dist.send(2 * numbers, 0)
    forget_names()
    dist.destroy_process_group()


if "RANK" in globals():
    run(globals()["STORE"], globals()["RANK"])

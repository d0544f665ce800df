import multiprocessing
import runpy
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from shared.errors import LinkUnavailable
from shared.links.choose import check_link
from shared.links.collective.ccl import building, group

RANKS = Path(__file__).with_name("ranks.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(building.missing() is not None, reason="needs oneCCL and g++"),
]


def test_torch_distributed_knows_the_backend_ccl(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shared.processes.rendezvous"])
    task = {"STORE": str(tmp_path / "store")}
    ranks = [
        context.Process(target=runpy.run_path, args=(str(RANKS), task | {"RANK": rank})) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0, 0]


def test_it_is_for_two_ranks() -> None:
    with pytest.raises(RuntimeError, match="this backend is for 2 ranks, not 3"):
        group._create(dist.HashStore(), 0, 3, timedelta(seconds=1))  # type: ignore[attr-defined]


def test_after_a_message_that_can_not_be_given_up_the_process_must_start_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "_stuck", [torch.zeros(1)])
    with pytest.raises(LinkUnavailable, match=r"link ccl is not available: .*start this process once more"):
        check_link("ccl")


@pytest.mark.parametrize(("version", "fits"), [("2.8.0+cpu", True), ("2.7.1", False), ("2.13.0", False)])
def test_intels_bindings_are_taken_where_they_fit(
    version: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building.importlib.util, "find_spec", lambda name: name == building.BINDINGS)
    monkeypatch.setattr(building.metadata, "version", lambda _: version)
    monkeypatch.setattr(torch, "__version__", "2.8.0+cpu")
    assert building.bindings_fit() == fits

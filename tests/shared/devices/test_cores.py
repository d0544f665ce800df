"""A core of its own for each process that computes."""

import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from shared.devices import claim_core, cores, settle_threads

CLAIMER = """
import os, sys
from shared.devices import claim_core, cores
cores.CLAIM = "\\0" + sys.argv[1] + "/{}"
with claim_core("child", "on") as core:
    print(core, sorted(os.sched_getaffinity(0)), flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Claims of this test alone, whatever else runs on the machine."""
    name = f"thinker-performer-test-{secrets.token_hex(8)}"
    monkeypatch.setattr(cores, "CLAIM", f"\0{name}/{{}}")
    return name


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def start(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLAIMER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, cwd=ROOT,
    )  # fmt: skip


def test_distinct_cores_for_distinct_processes(
    name: str, allowed: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    child = start(name)
    assert child.stdout is not None
    taken = int(child.stdout.readline().split()[0])
    with ExitStack() as claims:
        own = set()
        for _ in range(len(allowed) - 1):
            own.add(claims.enter_context(claim_core("test", "on")))
            os.sched_setaffinity(0, allowed)  # a claim narrows what the next one may choose from
        assert own == allowed - {taken}
        with claim_core("late", "on") as core:
            assert core is None
            assert os.sched_getaffinity(0) == allowed
        assert f"late: not pinned to a core: others have claimed all {len(allowed)}" in caplog.text
        child.kill()  # the kernel frees its claim
        child.communicate()
        with claim_core("late", "on") as core:
            assert core == taken
            assert os.sched_getaffinity(0) == {taken}


def test_a_core_given_back(name: str, allowed: set[int]) -> None:
    with claim_core("test", "on") as core:
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == allowed
    with claim_core("test", "on") as again:
        assert again == core


def test_only_the_calling_thread_is_pinned(name: str, allowed: set[int]) -> None:
    seen: list[set[int]] = []

    def model() -> None:
        with claim_core("model", "on"):
            seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=model)
    thread.start()
    thread.join()
    assert len(seen[0]) == 1
    assert os.sched_getaffinity(0) == allowed


def test_not_when_told_so_or_with_several_threads(
    name: str, allowed: set[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with claim_core("test", "off") as core:
        assert core is None
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with claim_core("test", "on") as core:
        assert core is None
    assert "test: not pinned to a core: pin = off" in caplog.text
    assert "test: not pinned to a core: it computes with 2 threads" in caplog.text
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(("number", "claimed"), [(1, 0), (2, 0), (3, 0), (4, 2), (9, 4)])
def test_auto_leaves_half_of_the_cores_to_the_rest(
    name: str, monkeypatch: pytest.MonkeyPatch, number: int, claimed: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(number)))
    monkeypatch.setattr(cores, "in_order", sorted)  # whatever this machine's cores are
    pinned: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: pinned.append(cores))
    with ExitStack() as claims:
        got = [claims.enter_context(claim_core(f"claim {n}", "auto")) for n in range(number)]
        assert [core for core in got if core is not None] == list(range(claimed))
        assert pinned == [{core} for core in range(claimed)]


@pytest.mark.parametrize(
    ("siblings", "order"),
    [
        ({0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}, [0, 1, 4, 5]),
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, [0, 2, 1, 3]),
        ({2: "2-3", 3: "2-3", 5: "4-5"}, [2, 5, 3]),
        ({}, [0, 1]),
    ],
)
def test_physical_cores_come_first(tmp_path: Path, siblings: dict[int, str], order: list[int]) -> None:
    for number, listed in siblings.items():
        folder = tmp_path / f"cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{listed}\n")
    assert cores.in_order(set(siblings) or {0, 1}, tmp_path) == order


def test_one_operation_at_a_time() -> None:
    before = torch.get_num_threads()
    settle_threads(2)
    assert torch.get_num_threads() == 2
    settle_threads(before)
    assert torch.get_num_threads() == before

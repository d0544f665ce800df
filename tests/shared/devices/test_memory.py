"""What the host can still give, under either version of control groups."""

from pathlib import Path

import pytest

from shared.devices.memory import host_headroom

GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n")
    (proc / "self/cgroup").write_text("0::/\n")
    return proc


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_here() -> None:
    assert host_headroom() > 10_000_000


def test_without_groups_the_kernel_says(proc: Path, tmp_path: Path) -> None:
    assert host_headroom(proc, tmp_path / "none") == 8 * GIB


def test_version_2_and_every_group_above(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/user/app\n")
    groups = tmp_path / "groups"
    write(groups / "user/app", memory__max="max", memory__current=GIB, memory__stat="inactive_file 0")
    write(groups / "user", memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=f"inactive_file {GIB}")
    assert host_headroom(proc, groups) == 2 * GIB


def test_in_a_container_the_root_is_the_own_group(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("0::/somewhere/of/the/host\n")
    groups = tmp_path / "groups"
    write(groups, memory__max=2 * GIB, memory__current=GIB, memory__stat="inactive_file 0")
    assert host_headroom(proc, groups) == GIB


def test_version_1(proc: Path, tmp_path: Path) -> None:
    (proc / "self/cgroup").write_text("5:devices:/\n4:memory:/app\n0::/\n")
    none = {"memory__limit_in_bytes": 2**63 - 4096, "memory__usage_in_bytes": 0, "memory__stat": "cache 0"}
    groups = tmp_path / "groups"
    write(groups / "memory", **none)
    write(groups / "memory/app", **none)
    assert host_headroom(proc, groups) == 8 * GIB
    write(groups / "memory/app", memory__limit_in_bytes=3 * GIB, memory__usage_in_bytes=4 * GIB)
    assert host_headroom(proc, groups) == 0

"""How much memory the host can still give: what the kernel says, or what a control group leaves."""

from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
_FILES = {  # version of control groups: limit, usage, and what of the usage is file cache that can be dropped
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def host_headroom(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Bytes that this process can still allocate."""
    rooms = [_available(proc)]
    for version, group in _groups(proc, cgroups):
        rooms += _room(group, *_FILES[version])
    return max(0, min(rooms))


def _available(proc: Path) -> int:
    for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise AssertionError("a kernel of this century says MemAvailable")


def _groups(proc: Path, cgroups: Path) -> list[tuple[int, Path]]:
    """The memory groups of this process: its own and all above it, since every limit holds."""
    found = []
    for line in (proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            version, root = 1, cgroups / "memory"
        elif number == "0":
            version, root = 2, cgroups
        else:
            continue
        inside = root / path.lstrip("/")  # in a container often not there: the root is its own group then
        found += [(version, group) for group in (inside, *inside.parents) if group.is_relative_to(root)]
    return found


def _room(group: Path, limit: str, usage: str, droppable: str) -> list[int]:
    """What the limit of one group leaves; empty where it has none."""
    try:
        allowed = (group / limit).read_text(encoding="ascii").strip()
        used = int((group / usage).read_text(encoding="ascii"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except OSError:
        return []
    return [] if allowed == "max" else [int(allowed) - used + int(stat.get(droppable, 0))]

"""Which package may import which (docs/architecture.md, "Where things live"), and what classes are called."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "protocol": set(),
    "shared": set(),
    "performer": {"shared"},
    "thinker": {"shared", "protocol"},
    "client": {"protocol"},
    "training": {"shared"},
    "benchmarks": {"shared", "protocol", "client", "thinker", "performer"},
}
OURS = {*MAY_IMPORT, "scripts", "configs", "tests"}
ACCELERATORS = {"torch.cuda", "torch.xpu"}
NOT_IN_PROTOCOL = {"asyncio", "socket", "torch", "numpy"}


def imported(path: Path) -> Iterator[str]:
    """Top-level names of all modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_in_one_direction(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = set(imported(path)) & OURS - MAY_IMPORT[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_protocol_does_no_io() -> None:
    for path in sorted((ROOT / "protocol").rglob("*.py")):
        assert not set(imported(path)) & NOT_IN_PROTOCOL, path.name


def named(path: Path) -> Iterator[str]:
    """All `a.b` that a file names, and modules that it imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (".".join(alias.name.split(".")[:2]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield ".".join((node.module or "").split(".")[:2])


def test_one_package_knows_accelerators() -> None:
    devices = ROOT / "shared/devices"
    files = [path for package in {*MAY_IMPORT, "scripts"} for path in (ROOT / package).rglob("*.py")]
    naming = {path for path in files if ACCELERATORS & set(named(path))}
    assert {path.parent for path in naming} == {devices}
    assert not [path for path in files if "intel_extension_for_pytorch" in set(imported(path))]


# What a Performer alone on a CPU, linked over shm or gloo, has no use for.
FENCED = {
    "performer.broadcast", "performer.group", "shared.devices.accelerator", "shared.devices.ipex",
    "shared.links.collective.ccl.group", "shared.links.collective.ccl.library",
    "shared.links.collective.device_transport", "shared.links.collective.ready_to_receive",
}  # fmt: skip
PLAIN = """
import sys
import performer.process, thinker.engine.engine
from shared.devices import open_device
from shared.links.choose import available_links, check_link
open_device("cpu"), available_links("cpu"), check_link("shm"), check_link("gloo")
print(*sys.modules, sep="\\n")
"""


def test_who_uses_no_accelerator_no_ranks_and_no_collective_library_never_imports_them() -> None:
    for module in FENCED:
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    ran = subprocess.run([sys.executable, "-c", PLAIN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not FENCED & set(ran.stdout.split())


def test_no_public_class_name_is_defined_in_two_runtime_modules() -> None:
    modules = defaultdict(set)
    for package in (*MAY_IMPORT, "benchmarks", "scripts"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].add(str(path.relative_to(ROOT)))
    twice = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert not twice

"""Which package may import which: docs/architecture.md, "Where things live"."""

import ast
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
}
OURS = {*MAY_IMPORT, "scripts", "configs", "tests"}
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

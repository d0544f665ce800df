import shutil
from importlib import metadata
from pathlib import Path

import pytest

from shared.errors import LinkUnavailable
from shared.links.collective.ccl import building

installed = pytest.mark.skipif(building.missing() is not None, reason="needs oneCCL and g++")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert building.missing() == "it needs oneCCL (pip install oneccl-cpu-devel==2021.15.2)"
    with pytest.raises(LinkUnavailable, match=r"link ccl is not available: it needs oneCCL \(pip install"):
        building.shim()


@installed
def test_without_a_compiler_the_message_says_how_to_get_one(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(LinkUnavailable, match=r"it needs a C\+\+ compiler, once .*apt install g\+\+"):
        building.shim()


@installed
def test_the_shim_is_built_once_and_then_needs_no_compiler(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = building.shim()
    assert [path.name for path in (empty_cache / "thinker-performer").iterdir()] == [made.name]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert building.missing() is None
    assert building.shim() == made


@installed
def test_another_source_is_another_shim(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = empty_cache / "shim.cpp"
    wrong.write_text("this is no C++")
    before = building._built()
    monkeypatch.setattr(building, "_SOURCE", wrong)
    assert building._built() != before
    with pytest.raises(LinkUnavailable, match=r"its shim does not compile: .*error"):
        building.shim()
    assert list((empty_cache / "thinker-performer").iterdir()) == []

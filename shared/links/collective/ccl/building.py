"""Where oneCCL is, and the shim built against it: on demand, once for each user and version."""

import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from shared.errors import LinkUnavailable

BINDINGS = "oneccl_bindings_for_pytorch"
PACKAGE = "oneccl-cpu-devel"
INSTALL = f"pip install {PACKAGE}==2021.15.2"  # later ones don't install whole

_log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("shim.cpp")
_BUILD_S = 120


def missing() -> str | None:
    """What is missing for a `ccl` link, in words; Intel's bindings do without the shim. Builds nothing."""
    if bindings_fit():
        return None
    try:
        metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return f"it needs oneCCL ({INSTALL})"
    if not _built().exists() and shutil.which("g++") is None:
        return "it needs a C++ compiler, once (g++; on Debian: apt install g++)"
    return None


def bindings_fit() -> bool:
    """Whether Intel's bindings are there, for this torch: beside another one their import fails."""
    if importlib.util.find_spec(BINDINGS) is None:
        return False
    made_for, there = metadata.version("oneccl_bind_pt"), torch.__version__
    if made_for.split(".")[:2] == there.split(".")[:2]:
        return True
    _log.debug("ccl: %s %s does not fit torch %s", BINDINGS, made_for, there)
    return False


@cache
def library_path(name: str) -> Path:
    """A library or header that oneCCL's packages brought, by the end of its path."""
    for package in (PACKAGE, "oneccl-cpu", "impi-rt"):
        for file in metadata.files(package) or ():
            if file.as_posix().endswith(name):
                return Path(str(file.locate())).resolve()
    raise LinkUnavailable(f"link ccl is not available: {name} is missing from {PACKAGE} ({INSTALL})")


def shim() -> Path:
    """The shim; built where it isn't yet, which takes a second or two.

    Raises:
        LinkUnavailable: it can't be built; says why.
    """
    if (reason := missing()) is not None:
        raise LinkUnavailable(f"link ccl is not available: {reason}")
    target = _built()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            _compile(made)
            made.replace(target)
    return target


def _built() -> Path:
    """Where the shim is kept. The name tells what it is built from, so that nothing old is ever taken."""
    key = hashlib.sha256(_SOURCE.read_bytes())
    key.update(f"{metadata.version(PACKAGE)} {platform.machine()}".encode())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "thinker-performer" / f"ccl-{key.hexdigest()[:16]}.so"


def _compile(target: Path) -> None:
    include = library_path("include/oneapi/ccl.hpp").parent.parent
    # Not linked to oneCCL: it is loaded before the shim, wherever it lies by then.
    build = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", str(target), str(_SOURCE)]
    try:
        subprocess.run(build, check=True, capture_output=True, text=True, timeout=_BUILD_S)  # noqa: S603
    except subprocess.CalledProcessError as error:
        first = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr[:200])
        raise LinkUnavailable(f"link ccl is not available: its shim does not compile: {first}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkUnavailable(f"link ccl is not available: its shim can't be built: {error}") from None

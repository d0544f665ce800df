"""Intel's extension, which ended with 2.8: used where it is installed and made for this very torch."""

import importlib
import logging
from importlib import metadata
from typing import cast

import torch

from shared.devices.device import ModuleT

log = logging.getLogger(__name__)

PACKAGE = "intel-extension-for-pytorch"


def optimise(module: ModuleT, dtype: torch.dtype) -> ModuleT:
    """`ipex.optimize(module)`, or the module as it is."""
    if not fits():
        return module
    ipex = importlib.import_module(PACKAGE.replace("-", "_"))
    return cast("ModuleT", ipex.optimize(module, dtype=dtype))


def fits() -> bool:
    """Whether it may be imported: beside another torch than its own the import itself fails."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    same = _release(version) == _release(torch.__version__)
    if not same:
        log.info("%s %s is not used: it needs torch %s", PACKAGE, version, ".".join(_release(version)))
    return same


def _release(version: str) -> list[str]:
    return version.split(".")[:2]

"""IPEX is imported only beside the torch that it was made for."""

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from shared.devices import ipex


def test_without_it_the_module_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    module = nn.Linear(2, 2)
    assert ipex.optimise(module, torch.float32) is module


@pytest.mark.parametrize(
    ("torch_version", "fits"), [("2.8.1+xpu", True), ("2.13.0+cpu", False), ("2.80.0", False)]
)
def test_only_of_the_same_release(monkeypatch: pytest.MonkeyPatch, torch_version: str, fits: bool) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2.8.0")
    monkeypatch.setattr(torch, "__version__", torch_version)
    monkeypatch.setitem(
        sys.modules, "intel_extension_for_pytorch",
        SimpleNamespace(optimize=lambda module, dtype: ("optimised", module, dtype)),
    )  # fmt: skip
    module = nn.Linear(2, 2)
    optimised = ipex.optimise(module, torch.bfloat16)
    assert optimised == ("optimised", module, torch.bfloat16) if fits else optimised is module

"""A run with small sizes over one link: what the table and the ratios hold."""

import argparse
import math
from contextlib import nullcontext

import pytest
from rich.console import Console

from benchmarks import links
from shared.links.base import LinkShape

pytestmark = pytest.mark.slow


def test_rows_and_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LINKS", ("shm", "nccl"))
    monkeypatch.setattr(links, "SIZES", {"8 KB": 8 << 10, "1 MB": 1 << 20})
    monkeypatch.setattr(links, "SHAPE", LinkShape(to_peer=1 << 20, from_peer=1 << 20))
    monkeypatch.setattr(links, "MESSAGES_A_ROUND", (2, 4))
    monkeypatch.setattr(links, "_busy", lambda _: nullcontext())
    result = links.bench(argparse.Namespace(), Console(quiet=True))
    assert [(row["µs"], row["size"]) for row in result.rows] == [
        (what, size) for what in ("two copies", "shm") for size in ("8 KB", "1 MB")
    ]
    shm = result.rows[-1]
    assert all(isinstance(shm[name], float) and shm[name] > 0 for name in shm if name not in {"µs", "size"})
    assert result.ratios["ccl_1mb_over_gloo"] is None
    assert result.ratios["shm_16mb_over_two_copies"] is None
    measured = [
        value for name, value in result.ratios.items() if name.startswith("shm_8kb") or "1mb_over_two" in name
    ]
    assert all(value is not None and math.isfinite(value) and value > 0 for value in measured)
    assert any(note.startswith("nccl was not measured: it needs an NVIDIA GPU") for note in result.notes)

"""A tiny pocket model whose weights are all random, none left at zero, so that everything has an effect."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from shared.config import load_config
from shared.devices import Device
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.weights import PocketWeights
from shared.tables import from_table


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Two threads are slower than one for models as small as these."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """What packed layers compute in, where the processor can."""
    if request.param == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no bfloat16")
    return request.param


@torch.no_grad()
def stir(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))


@pytest.fixture
def tiny_family() -> Callable[..., PocketFamily]:
    """Builds the family of `configs/tiny.toml`; keyword arguments replace fields of its tables."""

    def build(**changes: Any) -> PocketFamily:
        table = load_config("tiny").model
        merged = table | {
            name: table.get(name, {}) | change if isinstance(change, dict) else change
            for name, change in changes.items()
        }
        config = from_table(PocketConfig, merged, "model")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            weights = PocketWeights(config)
            stir(weights)
        return PocketFamily(config, weights, digest="tiny", device=Device(dtype="float32"))

    return build

"""The large shapes that ship as configs, built without memory: nothing is made for a toy alone."""

import pytest
import torch

from shared.config import load_config, shipped_configs
from shared.devices import Device
from shared.models.layout import KVBlock, Tower
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.weights import PocketWeights
from shared.tables import from_table


class Nowhere(Device):
    """Shapes without memory."""

    def _torch_device(self) -> torch.device:
        return torch.device("meta")


def on_meta(name: str) -> PocketFamily:
    config = from_table(PocketConfig, load_config(name).model, "model")
    with torch.device("meta"):
        weights = PocketWeights(config)
    return PocketFamily(config, weights, digest=name, device=Nowhere(dtype="float32"))


def count(module: torch.nn.Module) -> int:
    assert all(p.is_meta for p in module.parameters())
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "speaking", "listening", "tokens"),
    [("streamer-0.5b", 0.358e9, 0.011e9, 28), ("streamer-3b", 2.77e9, 0.024e9, 28)],
)
def test_large_shapes_build(name: str, speaking: float, listening: float, tokens: int) -> None:
    family = on_meta(name)
    network, config = family.weights.network, family.config
    towers = count(network.transformer), count(network.listener.transformer)
    assert towers == (config.transformer.numbers, config.listening_tower().numbers)
    assert towers == pytest.approx((speaking, listening), rel=0.03)
    assert 0 < count(family.weights) - sum(towers) < 50e6  # codecs, encoders, flow time, embeddings
    assert config.video.tokens_per_frame == tokens
    assert config.video.grid == (4, 7)
    cache = family.allocate(2).cache
    assert cache.kv_L2SNKD.is_meta
    numbers = cache.kv_L2SNKD[:, :, 0, 0].numel() * family.layout.tokens(KVBlock.COMMIT)
    assert numbers * 4 == family.slice_bytes(KVBlock.COMMIT)


@torch.no_grad()
def test_a_large_shape_runs_on_meta() -> None:
    family = on_meta("streamer-0.5b")
    network, layout, cache = family.weights.network, family.layout, family.allocate(1).cache
    for block in KVBlock:
        x_BTC = torch.empty(1, layout.tokens(block, Tower.SPEAKING), 896, device="meta")
        steps_T = layout.steps(block, 3, Tower.SPEAKING).to("meta")
        out = network.run(
            x_BTC,
            steps_T,
            torch.zeros(1, 1, 6, 896, device="meta"),
            cache.attend(cache.writing(block, [0], [3])),
        )
        assert out.shape == x_BTC.shape
    x_BTC = torch.empty(1, layout.tokens(KVBlock.STATE, Tower.LISTENING), 256, device="meta")
    steps_T = layout.steps(KVBlock.STATE, 3, Tower.LISTENING).to("meta")
    out = network.listener.run(
        x_BTC, steps_T, cache.attend(cache.writing(KVBlock.STATE, [0], [3], Tower.LISTENING))
    )
    assert out.shape == x_BTC.shape


@pytest.mark.parametrize("name", [name for name in shipped_configs() if load_config(name).family == "pocket"])
def test_every_shipped_config_is_a_model(name: str) -> None:
    config = from_table(PocketConfig, load_config(name).model, "model")
    layout = config.layout()
    assert layout.scratch.stop - layout.scratch.start == layout.tokens(KVBlock.COMMIT)

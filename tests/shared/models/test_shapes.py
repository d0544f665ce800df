"""The large shapes that ship as configs, built without memory: nothing is made for a toy alone."""

import pytest
import torch

from shared.config import load_config, shipped_configs
from shared.models.layout import Block
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.family import PocketFamily, PocketWeights
from shared.tables import from_table


def on_meta(name: str) -> PocketFamily:
    config = from_table(PocketConfig, load_config(name).model, "model")
    with torch.device("meta"):
        weights = PocketWeights(config)
    return PocketFamily(config, weights, digest=name, device="meta")


def count(module: torch.nn.Module) -> int:
    assert all(p.is_meta for p in module.parameters())
    return sum(p.numel() for p in module.parameters())


def expected_of_transformer(config: PocketConfig) -> int:
    """Attention, SwiGLU and modulation offsets of every layer; the flow time's two layers once."""
    c = config.transformer
    attention = c.dim * c.head_dim * (2 * c.heads + 2 * c.kv_heads)
    layer = attention + 3 * c.dim * c.ffn + 6 * c.dim
    return c.layers * layer + (c.time_dim + 1) * c.dim + (c.dim + 1) * 6 * c.dim


@pytest.mark.parametrize(
    ("name", "transformer", "tokens"), [("streamer-0.5b", 0.363e9, 28), ("streamer-3b", 2.80e9, 28)]
)
def test_large_shapes_build(name: str, transformer: float, tokens: int) -> None:
    family = on_meta(name)
    network = family.weights.network
    assert count(network.transformer) == expected_of_transformer(family.config)
    assert count(network.transformer) == pytest.approx(transformer, rel=0.01)
    assert 0 < count(family.weights) - count(network.transformer) < 30e6  # codecs, senses, embeddings
    assert family.config.video.tokens_per_frame == tokens
    assert family.config.video.grid == family.config.senses.eye_grid == (4, 7)
    cache = family._new_cache()
    assert cache.kv_L2KND.is_meta
    assert cache.slice_elements(Block.REMEMBER) * 4 == family.slice_bytes


@torch.no_grad()
def test_a_large_shape_runs_on_meta() -> None:
    family = on_meta("streamer-0.5b")
    cache = family._new_cache()
    for block in Block:
        x_BTC = torch.empty(1, family.layout.tokens(block), 896, device="meta")
        steps_T = family.layout.steps(block, 3).to("meta")
        out = family.weights.network.run(x_BTC, steps_T, family._clean_modulation, cache.writer(block, 3))
        assert out.shape == x_BTC.shape


@pytest.mark.parametrize("name", [name for name in shipped_configs() if load_config(name).family == "pocket"])
def test_every_shipped_config_is_a_model(name: str) -> None:
    config = from_table(PocketConfig, load_config(name).model, "model")
    layout = config.layout()
    assert layout.scratch == layout.tokens(Block.REMEMBER)

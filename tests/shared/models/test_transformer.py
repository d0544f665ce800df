import math

import pytest
import torch

from shared.models.cache import KVCache
from shared.models.layout import KVBlock, Layout, Stream
from shared.models.transformer import FlowTime, Transformer, TransformerConfig, rope_angles, rotate

CONFIG = TransformerConfig(dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=24, time_dim=8)
EIGHT_HOURS = 8 * 3600 * 25  # steps of 40 ms


@pytest.mark.parametrize("step", [0, 1, 12_345, EIGHT_HOURS, 365 * 24 * 3600 * 25])
def test_angles_are_exact_after_any_time(step: int) -> None:
    cos, sin = rope_angles(torch.tensor([step]), CONFIG)
    half = CONFIG.head_dim // 2
    for pair in range(half):
        angle = step * CONFIG.rope_theta ** (-pair / half)
        # Half a unit in the last place of fp32 and what fp64 leaves of an angle of 8e8 rad.
        assert cos[0, pair].item() == pytest.approx(math.cos(angle), abs=1e-6)
        assert sin[0, half + pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert (cos[0, half + pair], sin[0, pair]) == (cos[0, pair], -sin[0, half + pair])


def test_rotation_keeps_length_and_depends_on_distance_alone() -> None:
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)  # [B, T, H, D]
    scores = []
    for start in (0, 100, EIGHT_HOURS):
        turned_q, turned_k = (
            rotate(x, *rope_angles(torch.tensor([start + d]), CONFIG)) for x, d in ((q, 7), (k, 0))
        )
        torch.testing.assert_close(turned_q.norm(), q.norm())
        scores.append((turned_q * turned_k).sum())
    torch.testing.assert_close(scores[1], scores[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(scores[2], scores[0], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_session_after_eight_hours_is_as_in_its_first_seconds() -> None:
    layout = Layout(
        (
            Stream(name="a", block=KVBlock.STATE, offsets=(0, 1, 2, 3), span=3),
            Stream(name="b", block=KVBlock.COMMIT, offsets=(0, 2), span=2),
        ),
        scratch=2,
    )
    model = Transformer(CONFIG)
    inputs = [torch.randn(1, layout.tokens(block), CONFIG.dim) for _ in range(6) for block in KVBlock]
    clean = FlowTime(CONFIG)(torch.zeros(1, 1))

    def run(first_unit: int) -> list[torch.Tensor]:
        cache = KVCache(layout, CONFIG, dtype=torch.float32, device="cpu")
        passes = [(first_unit + unit, block) for unit in range(6) for block in KVBlock]
        return [
            model(x, layout.steps(block, unit), clean, cache.attend(cache.writing(block, [0], [unit])))
            for x, (unit, block) in zip(inputs, passes, strict=True)
        ]

    # Only relative times matter; fp32 cosines of other angles leave about 1e-6.
    for early, late in zip(run(0), run(EIGHT_HOURS // 4 + 1), strict=True):
        torch.testing.assert_close(late, early, atol=2e-5, rtol=1e-4)


def test_an_untrained_model_ignores_the_flow_time() -> None:
    out = FlowTime(CONFIG)(torch.rand(2, 3))
    assert out.shape == (2, 3, 6, CONFIG.dim)
    assert not out.any()


def test_flow_times_are_told_apart() -> None:
    flow_time = FlowTime(CONFIG)
    torch.nn.init.normal_(flow_time.write.weight)
    made = flow_time(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])).flatten(1)
    assert torch.pdist(made).min() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 3}, "heads=3 is not a multiple of kv_heads=2"),
        ({"head_dim": 7}, "head_dim=7 must be even"),
        ({"time_dim": 5}, "time_dim=5 must be even"),
        ({"layers": 0}, "layers=0 must be at least 1"),
    ],
)
def test_a_wrong_size_is_named(change: dict[str, int], message: str) -> None:
    sizes = {"dim": 16, "layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 8, "time_dim": 8}
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**sizes | change)

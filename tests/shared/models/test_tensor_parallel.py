"""Ranks that share a transformer give what one gives."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from shared.models.tensor_parallel import WHOLE, ShardSpec, part_of, shard
from shared.models.transformer import Transformer, TransformerConfig

CONFIG = TransformerConfig(dim=48, layers=3, heads=8, kv_heads=4, head_dim=8, ffn=96)
TOKENS = 5


class SummedRanks:
    """Where ranks that are threads add up."""

    def __init__(self, ranks: int) -> None:
        self._parts: list[Tensor] = [torch.empty(0)] * ranks
        self._barrier = threading.Barrier(ranks, timeout=30)

    def share(self, rank: int) -> ShardSpec:
        def reduce(x: Tensor) -> Tensor:
            self._parts[rank] = x
            self._barrier.wait()
            total = torch.stack(self._parts).sum(0)
            self._barrier.wait()
            return total

        return ShardSpec(rank=rank, ranks=len(self._parts), reduce=reduce)


def transformer() -> Transformer:
    torch.manual_seed(4)
    whole = Transformer(CONFIG).requires_grad_(False)
    for block in whole.blocks:
        torch.nn.init.normal_(block.out.weight, std=0.2)  # as loud as a trained one
        torch.nn.init.normal_(block.down.weight, std=0.2)
    return whole


def attend(layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q_BTHD, k_BTKD, v_BTKD))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)


def run(model: Transformer) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x_BTC = torch.randn(2, TOKENS, CONFIG.dim, generator=generator)
    modulation = 0.1 * torch.randn(2, 1, 6, CONFIG.dim, generator=generator)
    with torch.inference_mode():
        out: Tensor = model(x_BTC, torch.arange(TOKENS), modulation, attend)
    return out


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_give_what_one_gives(ranks: int) -> None:
    summed = SummedRanks(ranks)
    parts = [transformer() for _ in range(ranks)]
    for rank, part in enumerate(parts):
        shard(part, summed.share(rank))
    with ThreadPoolExecutor(ranks) as threads:
        outs = list(threads.map(run, parts))
    expected = run(transformer())
    for out in outs:
        assert torch.equal(out, outs[0]), "all ranks go on with the same bits"
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_a_rank_holds_its_part_alone() -> None:
    whole, part = transformer(), transformer()
    shard(part, ShardSpec(rank=1, ranks=4))
    assert part.config == part_of(CONFIG, 4)
    sizes = {name: weight.numel() for name, weight in whole.named_parameters() if "offset" not in name}
    for name, weight in part.named_parameters():
        if name in sizes:
            assert 4 * weight.numel() == sizes[name], name
            assert weight.untyped_storage().nbytes() == weight.nbytes, f"{name} is a view of the whole"


def test_a_share_of_things() -> None:
    assert WHOLE.of(6) == slice(0, 6)
    assert [ShardSpec(rank=rank, ranks=3).of(6) for rank in range(3)] == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 6),
    ]


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("kv_heads=1", TransformerConfig(heads=4, kv_heads=1)),
        ("kv_heads=3", TransformerConfig(heads=6, kv_heads=3)),
        ("ffn=705", TransformerConfig(ffn=705)),
    ],
)
def test_what_does_not_share_out_is_refused(field: str, config: TransformerConfig) -> None:
    with pytest.raises(ValueError, match=f"transformer: {field} can't be split over 2 ranks evenly"):
        part_of(config, 2)

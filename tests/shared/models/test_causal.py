import pytest
import torch
from torch import nn

from shared.models.causal import CausalConv1d, ConvNeXtBlock, init_contexts
from shared.models.onednn import PackedLinear, pack


@pytest.mark.parametrize("pieces", [(1,) * 12, (5, 7), (2, 9, 1), (12,)])
@pytest.mark.parametrize(
    "make",
    [
        lambda: CausalConv1d(8, 5),
        lambda: ConvNeXtBlock(8, 5, 2),
        lambda: ConvNeXtBlock(8, 5, 2).packed(torch.float32),
    ],
)
@torch.no_grad()
def test_a_stream_in_pieces_equals_the_whole(make, pieces: tuple[int, ...]) -> None:
    block = make()
    x_BTC = torch.randn(2, 12, 8)
    whole, last = block(x_BTC, block.init_context(2))
    context, made = block.init_context(2), []
    for piece in x_BTC.split(pieces, dim=1):
        y, context = block(piece, context)
        made.append(y)
    # Convolution and matrix kernels sum in an order that depends on the length.
    torch.testing.assert_close(torch.cat(made, dim=1), whole, atol=1e-6, rtol=1e-5)
    assert torch.equal(context, last)


@torch.no_grad()
def test_the_future_has_no_effect() -> None:
    block = ConvNeXtBlock(8, 7, 2)
    x_BTC = torch.randn(1, 10, 8)
    other = x_BTC.clone()
    other[:, 6:] += 1
    (one, _), (two, _) = block(x_BTC, block.init_context(1)), block(other, block.init_context(1))
    assert torch.equal(one[:, :6], two[:, :6])
    assert not torch.isclose(one[:, 6:], two[:, 6:]).any(-1).all()


def test_the_context_is_not_written_to() -> None:
    block = CausalConv1d(4, 3)
    context = torch.randn(1, 2, 4)
    before = context.clone()
    block(torch.randn(1, 1, 4), context)
    assert torch.equal(context, before)


def test_contexts_of_a_row_of_blocks() -> None:
    contexts = init_contexts([ConvNeXtBlock(4, 3, 2), ConvNeXtBlock(6, 5, 2)], 3)
    assert [tuple(c.shape) for c in contexts] == [(3, 2, 4), (3, 4, 6)]


@torch.inference_mode()
def test_a_packed_block_equals_the_block(dtype: torch.dtype) -> None:
    row = nn.ModuleList([ConvNeXtBlock(16, 5, 2)])
    x_BTC, contexts = torch.randn(3, 12, 16), init_contexts(row, 3)
    contexts[0].normal_()
    expected, last = row[0](x_BTC, contexts[0])
    pack(row, dtype)
    assert isinstance(row[0].up, PackedLinear)
    assert [context.shape for context in init_contexts(row, 3)] == [contexts[0].shape]
    made, context = row[0](x_BTC, contexts[0])
    torch.testing.assert_close(made, expected, atol=1e-6 if dtype == torch.float32 else 1e-2, rtol=0)
    assert torch.equal(context, last)

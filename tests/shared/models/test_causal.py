import pytest
import torch

from shared.models.causal import CausalConv1d, ConvNeXtBlock, init_contexts


@pytest.mark.parametrize("pieces", [(1,) * 12, (5, 7), (2, 9, 1), (12,)])
@pytest.mark.parametrize("make", [lambda: CausalConv1d(8, 5), lambda: ConvNeXtBlock(8, 5, 2)])
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

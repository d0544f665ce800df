import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.planner.weights import weights_read


class TwoStages(nn.Module):
    """Weights of which each stage reads some."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32, bias=False)
        self.both = nn.Linear(32, 32, bias=False)
        self.unused = nn.Linear(1000, 1000)
        self.table = torch.ones(16)

    def one(self, x: Tensor, memory: Tensor) -> Tensor:
        memory.add_(self.both(self.first(x)))
        return memory

    def two(self, x: Tensor) -> Tensor:
        return functional.gelu(self.both(x)) + self.table.repeat(2)


@torch.inference_mode()
def test_only_what_two_sessions_both_read_is_weights() -> None:
    model = TwoStages()
    sessions = [(torch.ones(4, 64), torch.zeros(4, 32)) for _ in range(2)]
    one = weights_read([lambda x=x, memory=memory: model.one(x, memory) for x, memory in sessions])
    two = weights_read([lambda memory=memory: model.two(memory) for _, memory in sessions])
    assert sum(one.values()) == 4 * (64 * 32 + 32 * 32)
    assert sum(two.values()) == 4 * (32 * 32 + 16)
    assert sum(one[key] for key in one.keys() & two.keys()) == 4 * 32 * 32


@torch.inference_mode()
def test_a_view_counts_as_the_whole_that_it_lies_in() -> None:
    weight = torch.ones(8, 64)
    inputs = [torch.ones(64), torch.ones(64)]
    read = weights_read([lambda x=x: weight[2:4] @ x for x in inputs])
    assert sum(read.values()) == weight.nbytes


@torch.inference_mode()
def test_packed_weights_are_seen() -> None:
    weight = torch.ones(8, 64).to_mkldnn()
    inputs = [torch.ones(3, 64), torch.ones(3, 64)]
    read = weights_read([lambda x=x: torch.ops.aten.mkldnn_linear(x.to_mkldnn(), weight) for x in inputs])
    assert sum(read.values()) == 8 * 64 * 4

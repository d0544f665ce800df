"""Bookkeeping of recorded work: static buffers, buckets, padding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shared.devices.graphs import InBuckets, Replay, bucket_sizes
from shared.errors import DeviceError


def record(*inputs: Tensor) -> Replay:
    """x, y → (x + y, 2 x), recorded on buffers as a graph would be."""
    x, y = inputs
    total, double = torch.empty_like(x), torch.empty_like(x)

    def replay() -> None:
        torch.add(x, y, out=total)
        torch.mul(x, 2, out=double)

    return Replay(inputs, (total, double), replay)


def test_buckets_are_powers_of_two_and_the_largest() -> None:
    assert bucket_sizes(1) == [1]
    assert bucket_sizes(8) == [1, 2, 4, 8]
    assert bucket_sizes(11) == [1, 2, 4, 8, 11]


def test_the_smallest_bucket_that_holds_a_batch_is_taken() -> None:
    taken: list[int] = []

    def work_of(bucket: int) -> Callable[[Tensor], Tensor]:
        def work(x: Tensor) -> Tensor:
            taken.append(bucket)
            assert len(x) == bucket
            return x

        return work

    work = InBuckets({bucket: work_of(bucket) for bucket in reversed(bucket_sizes(11))}, pads=True)
    for size in (1, 2, 3, 5, 9, 11):
        assert len(work(torch.zeros(size))) == size
    assert taken == [1, 2, 4, 8, 11, 11]


@pytest.mark.parametrize("size", [0, 12])
def test_what_no_bucket_holds(size: int) -> None:
    work = InBuckets(dict.fromkeys(bucket_sizes(11), torch.neg), pads=True)
    with pytest.raises(DeviceError, match=rf"a batch of {size} .* \[1, 2, 4, 8, 11\]"):
        work(torch.zeros(size))


def test_a_replay_reads_new_values_and_returns_the_same_buffers() -> None:
    recorded = record(torch.zeros(2), torch.zeros(2))
    first = recorded(torch.tensor([1.0, 2]), torch.tensor([10.0, 20]))
    assert [x.tolist() for x in first] == [[11, 22], [2, 4]]
    second = recorded(torch.tensor([3.0, 4]), torch.tensor([0.0, 0]))
    assert second[0] is first[0]
    assert first[0].tolist() == [3, 4]


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.zeros(3), torch.zeros(3)),
        (torch.zeros(2),),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    ],
)
def test_other_shapes_are_refused(arguments: tuple[Tensor, ...]) -> None:
    recorded = record(torch.zeros(2), torch.zeros(2))
    with pytest.raises(DeviceError, match=r"captured for \['float32\[2\]', 'float32\[2\]'\] and called with"):
        recorded(*arguments)


def test_a_batch_is_padded_with_its_last_row_and_cut() -> None:
    shapes: list[list[float]] = []

    def in_bucket(size: int) -> Replay:
        x, y = torch.zeros(size, 2), torch.zeros(size, 2)
        recorded = record(x, y)

        def seen() -> None:
            shapes.append(x[:, 0].tolist())
            recorded._replay()

        return Replay((x, y), recorded._outputs, seen)

    work = InBuckets({size: in_bucket(size) for size in bucket_sizes(4)}, pads=True)
    x = torch.tensor([[1.0, 1], [2, 2], [3, 3]])
    total, double = work(x, x)
    assert total.tolist() == double.tolist() == (2 * x).tolist()
    work(x[:1], x[:1])
    work(x[:2], x[:2])
    assert shapes == [[1, 2, 3, 3], [1], [1, 2]]

import pytest
import torch

from shared.models.layout import STEPS_PER_UNIT, Block, Layout, Stream

STREAMS = (
    Stream(name="seen", block=Block.STATE, offsets=(3, 3), span=2),
    Stream(name="shown", block=Block.REMEMBER, offsets=(0, 1, 2, 3), span=3),
    Stream(name="said", block=Block.STATE, offsets=(0,), span=5),
)


@pytest.fixture
def layout() -> Layout:
    return Layout(STREAMS, scratch=4)


def test_rings_lie_side_by_side_and_cover_what_is_kept(layout: Layout) -> None:
    taken = [
        place
        for unit in range(30)  # the least common multiple of all spans
        for block in Block
        for part in layout.places(block, unit)
        for place in range(part.start, part.stop)
    ]
    assert sorted(set(taken)) == list(range(layout.kept))
    assert layout.kept == 2 * 2 + 3 * 4 + 5
    assert layout.capacity == layout.kept + 4


@pytest.mark.parametrize("unit", [0, 1, 29, 180_000])
def test_a_place_is_used_again_after_exactly_one_span(layout: Layout, unit: int) -> None:
    for block in Block:
        for index, stream in enumerate(layout.of(block)):
            places = [layout.places(block, unit + age)[index] for age in range(stream.span + 1)]
            assert places[0] == places[-1]
            assert len({place.start for place in places}) == stream.span
            assert all(place.stop - place.start == stream.tokens for place in places)


def test_a_block_names_its_streams_in_order(layout: Layout) -> None:
    assert [stream.name for stream in layout.of(Block.STATE)] == ["seen", "said"]
    assert layout.tokens(Block.STATE) == 3
    assert layout.tokens(Block.REMEMBER) == 4
    assert [place.start for place in layout.places(Block.STATE, 1)] == [2, 17]


def test_media_time_counts_steps_of_40_ms(layout: Layout) -> None:
    assert layout.steps(Block.STATE, 0).tolist() == [3, 3, 0]
    assert layout.steps(Block.REMEMBER, 2).tolist() == [8, 9, 10, 11]
    year = 365 * 24 * 3600 * 25
    steps = layout.steps(Block.REMEMBER, year // STEPS_PER_UNIT)
    assert steps.dtype == torch.int64
    assert steps[0] == year


@pytest.mark.parametrize("span", [0, -1])
def test_a_stream_needs_a_span(span: int) -> None:
    with pytest.raises(ValueError, match=f"stream seen: span={span}"):
        Stream(name="seen", block=Block.STATE, offsets=(0,), span=span)

import pytest
import torch

from shared.models.layout import STEPS_PER_UNIT, VISIBLE_LENGTHS, KVBlock, Layout, Stream, Tower

STREAMS = (
    Stream(name="seen", block=KVBlock.STATE, offsets=(3, 3), span=2),
    Stream(name="shown", block=KVBlock.COMMIT, offsets=(0, 1, 2, 3), span=3),
    Stream(name="said", block=KVBlock.STATE, offsets=(0,), span=5),
)


@pytest.fixture
def layout() -> Layout:
    return Layout(STREAMS, scratch=4)


def test_rings_and_scratch_lie_side_by_side_and_cover_all(layout: Layout) -> None:
    taken = [
        place
        for unit in range(30)  # the least common multiple of all spans
        for block in KVBlock
        for part in layout.places(block, unit)
        for place in range(part.start, part.stop)
    ]
    scratch = range(layout.scratch.start, layout.scratch.stop)
    assert sorted({*taken, *scratch}) == list(range(layout.capacity))
    assert not {*taken} & {*scratch}
    assert layout.capacity == 2 * 2 + 3 * 4 + 5 + 4


@pytest.mark.parametrize("unit", [0, 1, 29, 180_000])
def test_a_place_is_used_again_after_exactly_one_span(layout: Layout, unit: int) -> None:
    for block in KVBlock:
        for index, stream in enumerate(layout.of(block)):
            places = [layout.places(block, unit + age)[index] for age in range(stream.span + 1)]
            assert places[0] == places[-1]
            assert len({place.start for place in places}) == stream.span
            assert all(place.stop - place.start == stream.tokens for place in places)


def test_a_block_names_its_streams_in_order(layout: Layout) -> None:
    assert [stream.name for stream in layout.of(KVBlock.STATE)] == ["seen", "said"]
    assert layout.tokens(KVBlock.STATE) == 3
    assert layout.tokens(KVBlock.COMMIT) == 4
    assert [place.start for place in layout.places(KVBlock.STATE, 1)] == [4 + 2, 4 + 4 + 12 + 1]


def test_media_time_counts_steps_of_40_ms(layout: Layout) -> None:
    assert layout.steps(KVBlock.STATE, 0).tolist() == [3, 3, 0]
    assert layout.steps(KVBlock.COMMIT, 2).tolist() == [8, 9, 10, 11]
    year = 365 * 24 * 3600 * 25
    steps = layout.steps(KVBlock.COMMIT, year // STEPS_PER_UNIT)
    assert steps.dtype == torch.int64
    assert steps[0] == year


@pytest.mark.parametrize("span", [0, -1])
def test_a_stream_needs_a_span(span: int) -> None:
    with pytest.raises(ValueError, match=f"stream seen: span={span}"):
        Stream(name="seen", block=KVBlock.STATE, offsets=(0,), span=span)


EACH = (0, 1, 2, 3)
ONE_SPAN = (
    Stream(name="seen", block=KVBlock.STATE, offsets=(3,), span=100, tower=Tower.LISTENING),
    Stream(name="said", block=KVBlock.STATE, offsets=(0,), span=100),
    Stream(name="shown", block=KVBlock.COMMIT, offsets=EACH, span=100),
)


def test_streams_of_one_span_share_a_ring_that_is_seen_as_far_as_it_is_filled() -> None:
    layout = Layout(ONE_SPAN, scratch=4)
    start = layout.scratch.stop
    ends = [layout.visible(Tower.SPEAKING, unit).stop - start for unit in range(250)]
    for unit, end in enumerate(ends):
        written = [p for u in range(min(unit + 1, 100)) for b in KVBlock for p in layout.places(b, u)]
        assert max(place.stop for place in written if place.start >= start) - start <= end
    assert len({*ends}) <= VISIBLE_LENGTHS
    assert ends[0] < ends[50] < ends[99] == ends[249] == 500
    assert (
        layout.visible(Tower.LISTENING, 0).stop
        < layout.visible(Tower.LISTENING, 99).stop
        == layout.scratch.start
    )


def test_with_several_spans_all_is_seen_from_the_start(layout: Layout) -> None:
    assert layout.visible(Tower.SPEAKING, 0) == slice(layout.scratch.stop, layout.capacity)
    assert layout.visible(Tower.LISTENING, 0) == slice(0, 0)

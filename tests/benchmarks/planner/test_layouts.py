from collections.abc import Callable

import pytest

from benchmarks.planner.layouts import ONE_PROCESS, PAIR, Cell, cells
from benchmarks.planner.profile import Profile

MakeProfile = Callable[..., Profile]


def test_cells_of_few_devices(make_profile: MakeProfile) -> None:
    profile = make_profile(rank_speed_up=((1, 1.0), (2, 1.7)))
    assert [str(cell) for cell in cells(profile, 1)] == ["one process"]
    assert {str(cell) for cell in cells(profile, 2)} == {"one process", "pair"}
    assert {str(cell) for cell in cells(profile, 3)} == {
        "one process", "pair", "T+P(2)", "T+P+D", "T+2P", "2T+P",
    }  # fmt: skip


def test_no_cell_is_a_copy_of_a_smaller_one(make_profile: MakeProfile) -> None:
    names = {str(cell) for cell in cells(make_profile(), 9)}
    assert "2T+2P" not in names
    assert "2T+2P+2D" not in names
    assert "2T+2P+D" in names
    assert all(cell.devices <= 9 for cell in cells(make_profile(), 9))


def test_shards_that_split_a_unit_come_in_the_measured_numbers(make_profile: MakeProfile) -> None:
    profile = make_profile(decode_speed_up=((1, 1.0), (4, 3.0)))
    assert {cell.shards for cell in cells(profile, 9)} == {0, 1, 4}
    assert Cell(performers=1, shards=4).for_one_session(profile)
    assert not Cell(performers=1, shards=2).for_one_session(make_profile())


@pytest.mark.parametrize(
    ("cell", "megabytes"),
    [
        (ONE_PROCESS, 65.1 + 4 * 5),
        (PAIR, 65 + 4 * 5),  # the Thinker's
        (Cell(thinkers=2, performers=1), 65 + 2 * 5),
        (Cell(thinkers=2, performers=1, ranks=2), 65 + 2 * 5),
    ],
)
def test_memory_of_the_fullest_device(make_profile: MakeProfile, cell: Cell, megabytes: float) -> None:
    assert cell.memory_bytes(make_profile(), sessions=4) == megabytes * 1e6


def test_ranks_share_the_performers_memory(make_profile: MakeProfile) -> None:
    many = 40  # so that the Performer's side is the fuller one
    profile = make_profile()
    whole = Cell(thinkers=3, performers=1).memory_bytes(profile, many)
    assert whole == 20_100_000 + many * 5_000_000
    shared = Cell(thinkers=3, performers=1, ranks=2).memory_bytes(profile, many)
    assert shared == max(whole // 2, 65_000_000 + 14 * 5_000_000)

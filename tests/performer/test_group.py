"""Ranks of a group, as threads of this process: what they do together, and what they say when they can't."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from performer.broadcast import follower_ends, leader_ends
from performer.group import REDUCERS, ExitStatus, RankGroup, join_leader_store, open_leader_store
from shared.errors import DeviceError, GroupError, LinkClosed, LinkTimeout
from shared.links.base import LinkMessage, LinkShape
from shared.links.loopback import loopback_pair
from shared.slices import Kind, SliceHeader

TIMEOUT_S = 0.3
SHAPE = LinkShape(to_peer=4096, from_peer=256)

Ranks = list[RankGroup]


def header_of(unit: int, payload_bytes: int) -> SliceHeader:
    return SliceHeader(kind=Kind.STATE, session=1, unit=unit, payload_bytes=payload_bytes)


def message(unit: int, size: int) -> LinkMessage:
    return LinkMessage(header_of(unit, size), torch.full((size,), unit, dtype=torch.uint8))


def together(ranks: Ranks, do: Callable[[RankGroup], object]) -> list[object]:
    """Let all do something at the same time; what it gives, or the GroupError that it ends with."""

    def attempt(group: RankGroup) -> object:
        try:
            return do(group)
        except GroupError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(attempt, ranks))


def group_of(ranks: int, exit_status: ExitStatus = lambda: None, timeout_s: float = 30.0) -> Ranks:
    store = open_leader_store()
    leader = RankGroup(store, rank=0, ranks=ranks, timeout_s=timeout_s, exit_status=exit_status)
    followers = [
        RankGroup(join_leader_store(store.port), rank=rank, ranks=ranks, timeout_s=timeout_s)
        for rank in range(1, ranks)
    ]
    assert leader.wait_for_all("started", threading.Event())
    assert together([leader, *followers], RankGroup.connect) == [None] * ranks
    return [leader, *followers]


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    return group_of(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_get_the_sum_in_the_same_bits(ranks: Ranks, dtype: torch.dtype) -> None:
    parts = torch.randn(len(ranks), 2, 5, 3, generator=torch.Generator().manual_seed(6)).to(dtype)
    for _ in range(3):
        sums = together(ranks, lambda group: group.reduce(parts[group.rank].clone()))
        for total in sums:
            assert isinstance(total, Tensor)
            assert torch.equal(total, parts.sum(0))


def test_the_sum_takes_the_place_of_the_part(ranks: Ranks) -> None:
    parts = [torch.ones(4) for _ in ranks]
    sums = together(ranks, lambda group: group.reduce(parts[group.rank]))
    assert all(total is part for total, part in zip(sums, parts, strict=True))


def test_a_shard_is_the_rank_s(ranks: Ranks) -> None:
    for number, group in enumerate(ranks):
        assert (group.shard.rank, group.shard.ranks) == (number, len(ranks))


def test_followers_receive_what_the_leader_broadcasts(ranks: Ranks) -> None:
    sent = [message(7, 1000), message(8, 0), message(9, 4000)]

    def do(group: RankGroup) -> list[tuple[SliceHeader, bytes]]:
        received = []
        for each in sent:
            if group.rank == 0:
                group.begin_broadcast(each)
                group.finish_broadcast()
            else:
                header, payload = group.receive_broadcast()
                received.append((header, payload.numpy().tobytes()))
            assert group.unit == each.header.unit
        return received

    _, *followers = together(ranks, do)
    for received in followers:
        assert received == [(header, payload.numpy().tobytes()) for header, payload in sent]


def test_a_rank_that_does_not_come_is_named() -> None:
    leader, _, absent = ranks = group_of(3, timeout_s=TIMEOUT_S)
    leader.unit = 5
    results = together([group for group in ranks if group is not absent], lambda g: g.reduce(torch.ones(2)))
    assert str(results[0]) == "rank 0 of 3, unit 5: rank 2 did not answer within 0.3 s"
    assert isinstance(results[1], GroupError)


def test_a_message_that_no_follower_takes() -> None:
    leader, _ = group_of(2, timeout_s=TIMEOUT_S)
    leader.begin_broadcast(message(12, 100))
    with pytest.raises(GroupError, match=r"^rank 0 of 2, unit 12: rank 1 did not answer within 0.3 s$"):
        leader.finish_broadcast()


def test_a_rank_that_ended_is_told_by_its_exit_status() -> None:
    statuses: list[str] = []
    leader, follower = group_of(2, exit_status=lambda: statuses[0] if statuses else None)
    leader.check()
    statuses.append("rank 1 was ended by signal 9")
    follower._group = None
    for do in (leader.check, lambda: leader.reduce(torch.ones(1))):
        with pytest.raises(GroupError, match=r"^rank 0 of 2: rank 1 was ended by signal 9$"):
            do()


def test_followers_end_with_their_leader() -> None:
    leader, follower = group_of(2)
    leader._group = None
    with pytest.raises(LinkClosed, match="rank 1 of 2: the leader has ended"):
        follower.receive_broadcast()


@pytest.mark.parametrize(("device", "reducer"), REDUCERS.items())
def test_ranks_on_accelerators_need_what_adds_up_there(
    monkeypatch: pytest.MonkeyPatch, device: str, reducer: str
) -> None:
    monkeypatch.delattr(torch.distributed, reducer, raising=False)
    group = RankGroup(open_leader_store(), rank=0, ranks=2, timeout_s=1.0)
    with pytest.raises(
        DeviceError, match=f"^--device {device}: ranks need {reducer}, and torch .* has none$"
    ):
        group.connect(device)


def test_a_rank_that_ends_before_all_are_there() -> None:
    store = open_leader_store()
    leader = RankGroup(
        store, rank=0, ranks=2, timeout_s=1.0, exit_status=lambda: "rank 1 has ended with exit code 1"
    )
    with pytest.raises(GroupError, match="rank 0 of 2: rank 1 has ended with exit code 1"):
        leader.wait_for_all("started", threading.Event())


def test_waiting_for_all_can_be_stopped() -> None:
    leader = RankGroup(open_leader_store(), rank=0, ranks=2, timeout_s=1.0)
    stop = threading.Event()
    stop.set()
    assert not leader.wait_for_all("started", stop)


@pytest.fixture
def pair() -> Ranks:
    return group_of(2)


def test_what_comes_over_the_link_reaches_all_ranks(pair: Ranks) -> None:
    leader, follower = pair
    thinker, link = loopback_pair(SHAPE)
    with thinker, link, ThreadPoolExecutor(1) as thread:
        lead, follow = leader_ends(link, leader), follower_ends(follower, SHAPE.from_peer)
        for unit in (3, 4):
            thinker.sender.reserve(1.0)[:100] = unit
            thinker.sender.send(header_of(unit, 100))
            received = thread.submit(follow.receiver.receive, 1.0)
            header, payload = lead.receiver.receive(1.0)
            lead.receiver.release()
            assert received.result(30).header == header
            assert torch.equal(received.result(30).payload, payload)
            follow.receiver.release()
        with pytest.raises(LinkTimeout):
            lead.receiver.receive(0.01)
        assert follow.sender.reserve(1.0).nbytes == SHAPE.from_peer
        follow.sender.send(header_of(4, 100))
        assert thinker.receiver.poll() is None, "what a follower answers goes nowhere"


def test_a_leader_that_waits_for_the_thinker_sees_a_rank_end() -> None:
    leader = RankGroup(
        open_leader_store(),
        rank=0,
        ranks=2,
        timeout_s=1.0,
        exit_status=lambda: "rank 1 was ended by signal 9",
    )
    thinker, link = loopback_pair(SHAPE)
    with thinker, link, pytest.raises(GroupError, match="rank 1 was ended by signal 9"):
        leader_ends(link, leader).receiver.receive(0.01)

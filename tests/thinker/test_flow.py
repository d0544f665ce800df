"""Bounds: a mailbox that loses the oldest, an allowance that comes back with time."""

import asyncio

from thinker.flow import Allowance, Mailbox


async def test_a_mailbox_keeps_the_newest() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    for item in range(5):
        mailbox.put(item)
    assert (len(mailbox), mailbox.lost) == (2, 3)
    assert [await mailbox.get(), await mailbox.get()] == [3, 4]
    assert len(mailbox) == 0


async def test_a_reader_waits_for_what_comes() -> None:
    mailbox: Mailbox[str] = Mailbox(2)
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    mailbox.put("item")
    assert await reader == "item"


def test_an_allowance_is_a_burst_and_a_rate() -> None:
    allowance = Allowance(burst=10, per_s=2, now=100.0)
    assert allowance.spend(10, 100.0)
    assert not allowance.spend(1, 100.0)
    assert allowance.spend(1, 101.0)
    assert not allowance.spend(11, 1_000.0), "it holds no more than the burst"

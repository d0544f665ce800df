"""A mailbox never makes its writer wait: it loses the oldest."""

import asyncio

from thinker.server.drop_oldest_queue import DropOldestQueue


async def test_a_mailbox_keeps_the_newest() -> None:
    mailbox: DropOldestQueue[int] = DropOldestQueue(2)
    for item in range(5):
        mailbox.put(item)
    assert (len(mailbox), mailbox.lost) == (2, 3)
    assert [await mailbox.get(), await mailbox.get()] == [3, 4]
    assert len(mailbox) == 0


async def test_a_reader_waits_for_what_comes() -> None:
    mailbox: DropOldestQueue[str] = DropOldestQueue(2)
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    mailbox.put("item")
    assert await reader == "item"

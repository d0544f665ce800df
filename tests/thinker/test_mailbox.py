"""A mailbox never makes its writer wait: it loses the oldest."""

import asyncio

from thinker.mailbox import Mailbox


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

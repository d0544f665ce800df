"""How a link ends, at either side and in every moment: the same for every link."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.errors import LinkClosed, LinkTimeout
from shared.links.base import LinkShape
from shared.slices import Kind

PROCESSES = ["shm", "gloo", "ccl", "collective"]
LINKS = ["loopback", *PROCESSES]
SHAPE = LinkShape(to_peer=100_003, from_peer=100_003, depth=3)
LARGE = LinkShape(to_peer=5_000_000, from_peer=5_000_000, depth=2)
FLOOD_MESSAGES = 10  # of ends.py
OURS = ("thinker", "performer", "gloo", "torch", "psm", "ccl", "fi_", ":")
TIMEOUT_S = 30.0

pytestmark = pytest.mark.slow


def names(*parts: str) -> set[str]:
    """Of files that may be left behind, with one of the parts in them."""
    found = [path.name for folder in ("/dev/shm", "/tmp") for path in Path(folder).iterdir()]
    return {name for name in found if any(part in name for part in parts)}


@pytest.mark.parametrize("link", LINKS)
def test_a_performer_that_takes_nothing_holds_the_thinker_back(link: str, facing: Callable[..., Any]) -> None:
    with facing(link, "hold") as setting:
        setting.send(b"taken and kept")
        assert setting.receive() == b"t"
        # Over a network a message can wait on either side: depth here, and depth in posted receives.
        message = (
            r"link to the performer: it freed no buffer for state slice of unit \d within 0\.2 s, "
            rf"{SHAPE.depth} messages are in flight"
        )
        with pytest.raises(LinkTimeout, match=message):
            setting.fill(2 * SHAPE.depth, timeout_s=0.2)


@pytest.mark.parametrize("link", LINKS)
def test_a_performer_killed_while_busy_is_gone_for_sender_and_receiver(
    link: str, facing: Callable[..., Any]
) -> None:
    with facing(link, "hold") as setting:
        setting.send(b"x")
        assert setting.receive() == b"x"
        setting.kill()
        started = time.monotonic()
        assert setting.end.receiver.wait(TIMEOUT_S)
        with pytest.raises(LinkClosed, match="link from the performer: the performer is gone"):
            setting.end.receiver.receive(TIMEOUT_S)
        with pytest.raises(LinkClosed, match="link to the performer: the performer is gone"):
            setting.end.sender.reserve(TIMEOUT_S)
        assert time.monotonic() - started < TIMEOUT_S / 2


@pytest.mark.parametrize("link", LINKS)
def test_a_sender_held_back_learns_that_the_performer_died(link: str, facing: Callable[..., Any]) -> None:
    with facing(link, "hold") as setting:
        setting.send(b"x")
        assert setting.receive() == b"x"
        killer = threading.Timer(0.3, setting.kill)
        killer.start()
        with pytest.raises(LinkClosed, match="link to the performer: the performer is gone"):
            setting.fill(2 * SHAPE.depth, timeout_s=TIMEOUT_S)
        killer.join()


@pytest.mark.parametrize(
    ("victim", "stands_still"), [("thinker", False), ("performer", True)], ids=["sender", "receiver"]
)
@pytest.mark.parametrize("link", PROCESSES)
def test_a_process_killed_in_mid_message_ends_the_other(
    link: str, victim: str, stands_still: bool, couple: Callable[..., Any]
) -> None:
    survivor = {"thinker": "performer", "performer": "thinker"}[victim]
    before = names("")
    with couple(link, LARGE, thinker="pour", performer="absorb") as both:
        if stands_still:
            os.kill(getattr(both, victim).pid, signal.SIGSTOP)
        getattr(both, victim).kill()
        getattr(both, survivor).join(TIMEOUT_S)
        assert getattr(both, survivor).exitcode == 0
    assert not names(*(f"{pid}" for pid in both.pids)) - before


@pytest.mark.parametrize("link", PROCESSES)
def test_a_thinker_that_leaves_while_large_messages_come_ends_the_performer(
    link: str, facing: Callable[..., Any]
) -> None:
    with facing(link, "pour", LARGE) as setting:
        assert set(setting.receive()) == {0}
        setting.end.close()
        setting.performer.join(TIMEOUT_S)
        assert setting.performer.exitcode == 0


@pytest.mark.parametrize("link", LINKS)
def test_what_was_sent_before_leaving_still_arrives(link: str, facing: Callable[..., Any]) -> None:
    with facing(link, "flood") as setting:
        assert [setting.receive()[0] for _ in range(FLOOD_MESSAGES)] == list(range(FLOOD_MESSAGES))
        with pytest.raises(LinkClosed):
            setting.end.receiver.receive(TIMEOUT_S)


@pytest.mark.parametrize("link", LINKS)
def test_a_closed_end_says_so(link: str, facing: Callable[..., Any]) -> None:
    with facing(link, "hold") as setting:
        setting.send(b"x")
        assert setting.receive() == b"x"
        setting.end.close()
        setting.end.close()
        with pytest.raises(LinkClosed, match="link to the performer: this end was closed"):
            setting.end.sender.reserve(0)
        for call in (setting.end.receiver.poll, lambda: setting.end.receiver.wait(0)):
            with pytest.raises(LinkClosed, match="link from the performer: this end was closed"):
                call()


@pytest.mark.parametrize("link", LINKS)
def test_a_kill_leaves_nothing_behind(link: str, facing: Callable[..., Any]) -> None:
    def num_fds() -> int:
        gc.collect()
        return len([*Path("/proc/self/fd").iterdir()])

    with facing(link, "flood"):
        pass  # what is loaded and started once stays
    names_before, fds_before = names(*OURS), num_fds()
    with facing(link, "hold") as setting:
        setting.send(b"x")
        assert setting.receive() == b"x"
        setting.kill()
    del setting
    assert names(*OURS) <= names_before
    assert num_fds() <= fds_before


@pytest.mark.parametrize("link", LINKS)
def test_many_in_flight(link: str, facing: Callable[..., Any]) -> None:
    shape = LinkShape(to_peer=1000, from_peer=1000, depth=40)
    with facing(link, "echo", shape) as setting:
        for lap in range(3):
            messages = [bytes([lap]) * (1 + number) for number in range(shape.depth)]
            for message in messages:
                setting.send(message)
            assert [setting.receive() for _ in messages] == messages
        setting.send(b"", kind=Kind.END)
        assert setting.receive() == b""

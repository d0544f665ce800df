import os
import resource
import signal
import socket
import time

import pytest

from shared.links.peer import Peer
from shared.links.waiting import AnyOf, EventCounter, EventSemaphore, Poller, WakeEvent


def test_a_semaphore_is_taken_from_one_by_one() -> None:
    semaphore = EventSemaphore.create()
    assert not Poller((semaphore.fileno(),)).wait(0)
    semaphore.add()
    semaphore.add()
    assert Poller((semaphore.fileno(),)).wait(0)
    assert [semaphore.take() for _ in range(3)] == [1, 1, 0]
    assert not Poller((semaphore.fileno(),)).wait(0)
    semaphore.close()


def test_a_counter_is_taken_from_all_at_once() -> None:
    counter = EventCounter.create()
    counter.add()
    counter.add()
    assert Poller((counter.fileno(),)).wait(0)
    assert [counter.take() for _ in range(2)] == [2, 0]
    assert not Poller((counter.fileno(),)).wait(0)
    counter.close()


def test_a_wait_is_not_shorter_than_asked_and_not_rounded_to_milliseconds() -> None:
    semaphore = EventSemaphore.create()
    poller = Poller((semaphore.fileno(),))
    durations = []
    for _ in range(50):
        started = time.monotonic()
        assert not poller.wait(0.0002)
        durations.append(time.monotonic() - started)
    assert min(durations) >= 0.0002
    assert min(durations) < 0.001  # the shortest one shows the resolution, whatever else the machine does
    semaphore.close()


def test_a_signal_does_not_end_a_wait() -> None:
    semaphore = EventSemaphore.create()
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        started = time.monotonic()
        assert not Poller((semaphore.fileno(),)).wait(0.02)
        assert time.monotonic() - started >= 0.02
        assert handled
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        semaphore.close()


def test_a_wake_event_stays_set_until_cleared_and_counts_once() -> None:
    wake = WakeEvent()
    wake.set()
    wake.set()
    assert wake.wait(0)
    assert AnyOf(wake).wait(0)
    assert wake.clear()
    assert not wake.clear()
    assert not wake.wait(0)
    wake.close()


def test_descriptors_beyond_what_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this system allows no descriptor that high")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    semaphore = EventSemaphore.create()
    semaphore.add()
    high = os.dup2(semaphore.fileno(), 1100)
    try:
        assert Poller((high,)).wait(0)
    finally:
        os.close(high)
        semaphore.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_peer_is_gone_when_its_line_ends_and_not_when_it_talks() -> None:
    here, there = socket.socketpair()
    with Peer("performer", here) as peer:
        assert not peer.gone()
        there.sendall(b"stray")
        assert not peer.gone()
        assert not Poller((peer.fileno(),)).wait(0)  # stray bytes were taken off the line
        there.close()
        assert Poller((peer.fileno(),)).wait(10)
        assert peer.gone()


def test_hanging_up_shows_on_both_sides() -> None:
    here, there = socket.socketpair()
    with Peer("performer", here) as peer, Peer("thinker", there) as other:
        peer.hang_up()
        assert peer.gone()
        assert other.gone()
        other.close()
        other.hang_up()
        assert other.gone()

"""The engine with its model thread and a Performer on another: sessions come and go as they like."""

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from performer.loop import Performer
from shared.clock import Clock, UnpacedClock
from shared.config import load_config
from shared.errors import LinkClosed
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.processes.model import link_shape
from thinker.engine.admission import Admission
from thinker.engine.engine import EngineOptions, ThinkerEngine
from thinker.engine.pipeline import PipelineOptions
from thinker.engine.warmup import Silence
from thinker.report import SessionCounts, UnitCounts
from thinker.units import AgentUnit

SLOTS = 4
CONFIG = replace(load_config("tiny"), sessions=SLOTS, phases=2)
PATIENCE_S = 60.0
ACTIONS = 40


class Client(Silence):
    """A session from the server's side; notes what it gets."""

    def __init__(self, engine: ThinkerEngine) -> None:
        super().__init__(engine.spec)
        self.units: list[int] = []
        self.ends: list[str] = []
        self.handle = engine.open_session(inbox=self, on_unit=self._on_unit, on_end=self.ends.append)

    @property
    def number(self) -> int:
        assert self.handle is not None
        return self.handle.number

    def _on_unit(self, unit: AgentUnit) -> None:
        self.units.append(unit.unit)


class Pair:
    """The engine on a thread of its own, and the Performer on one."""

    def __init__(self, family: Family, link: LinkEnd, performer_end: LinkEnd, clock: Clock | None) -> None:
        options = PipelineOptions(slots=SLOTS, phases=CONFIG.phases)
        self.engine = ThinkerEngine(
            family,
            lambda: {"performer": link},
            EngineOptions(model="tiny", pin="off", pipeline=options),
            clock,
        )
        self.performer = Performer(family, performer_end, slots=SLOTS, checked=True)
        self.performer_end = performer_end
        self.senders = (link.sender, performer_end.sender)
        self.hung_up = threading.Event()
        self.threads = [threading.Thread(target=self.engine.run), threading.Thread(target=self._perform)]

    def _perform(self) -> None:
        with self.performer_end, suppress(LinkClosed):
            while not self.hung_up.is_set():
                self.performer.step()

    def until(self, true: Callable[[], object]) -> None:
        """The model thread rings no bell when it has done something: look often."""
        pause = threading.Event()
        for _ in range(round(PATIENCE_S / 0.002)):
            if true():
                return
            pause.wait(0.002)
        raise AssertionError(f"not within {PATIENCE_S} s")

    @property
    def running(self) -> set[int]:
        """Sessions of the Performer."""
        return set(self.performer.sessions)


@contextmanager
def started(family: Family, clock: Clock | None = None) -> Iterator[Pair]:
    pair = Pair(family, *loopback_pair(link_shape(family, CONFIG)), clock)
    for thread in pair.threads:
        thread.start()
    try:
        pair.until(lambda: pair.engine.ready)
        yield pair
    finally:
        pair.engine.stop()
        for thread in pair.threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in pair.threads)


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a slot is let in."""
    monkeypatch.setattr(Admission, "fits", lambda _, running, __: running < SLOTS)


@pytest.fixture
def pair(tiny_family: Family, roomy: None) -> Iterator[Pair]:
    with started(tiny_family, UnpacedClock()) as pair:
        yield pair


def test_sessions_that_come_and_go_get_every_unit_once_and_in_order(pair: Pair) -> None:
    rng, engine = random.Random(4), pair.engine
    here: list[Client] = []
    gone: list[tuple[Client, int]] = []
    for _ in range(ACTIONS):
        if len(here) == SLOTS:
            assert Client(engine).handle is None
        if here and rng.random() < len(here) / SLOTS:
            client = here.pop(rng.randrange(len(here)))
            engine.close_session(client.handle)
            pair.until(lambda client=client: client.number not in pair.running)
            gone.append((client, len(client.units)))
        else:
            here.append(Client(engine))
        wanted = [len(client.units) + rng.randrange(3) for client in here]
        pair.until(lambda wanted=wanted: all(len(c.units) >= n for c, n in zip(here, wanted, strict=True)))
    for client in here:
        engine.close_session(client.handle)
    pair.until(lambda: not pair.running)
    for client in (*here, *(client for client, _ in gone)):
        assert client.units == list(range(len(client.units)))
        assert client.ends == []
    assert all(len(client.units) == when_it_left for client, when_it_left in gone), "nothing comes afterwards"
    emitted = sum(len(client.units) for client in (*here, *(client for client, _ in gone)))
    assert engine.report().units == UnitCounts(emitted=emitted, late=0, dropped=0)


def test_nothing_of_a_session_stays(pair: Pair) -> None:
    engine, inboxes = pair.engine, []
    for _ in range(3 * SLOTS):
        client = Client(engine)
        inboxes.append(weakref.ref(client))
        pair.until(lambda client=client: len(client.units) >= 2)
        engine.close_session(client.handle)
        pair.until(lambda: not pair.running)
        del client
    last = Client(engine)
    pair.until(lambda: last.units)  # the model thread has let go of what it did before
    gc.collect()
    assert [inbox() for inbox in inboxes] == [None] * len(inboxes)
    pair.engine.close_session(last.handle)
    pair.until(lambda: not pair.running)
    pair.until(lambda: not any(buffer.payload.any() for sender in pair.senders for buffer in sender.buffers))


def test_closing_twice_does_no_harm(pair: Pair) -> None:
    first, second = Client(pair.engine), Client(pair.engine)
    for _ in range(2):
        pair.engine.close_session(first.handle)
    third = Client(pair.engine)
    pair.engine.close_session(first.handle)
    pair.until(lambda: pair.running == {second.number, third.number})
    pair.until(lambda: len(third.units) > 2)


def test_a_session_that_is_closed_at_once_leaves_no_trace(pair: Pair) -> None:
    clients = [Client(pair.engine) for _ in range(SLOTS)]
    for client in clients[1:]:
        pair.engine.close_session(client.handle)
    others = [Client(pair.engine) for _ in clients[1:]]
    pair.until(lambda: pair.running == {clients[0].number, *(other.number for other in others)})
    pair.until(lambda: all(len(client.units) > 2 for client in (clients[0], *others)))


def test_the_report_says_who_runs_and_how_many_could(pair: Pair) -> None:
    report = pair.engine.report
    assert report().sessions == SessionCounts(running=0, slots=SLOTS, fit=SLOTS)
    clients = [Client(pair.engine) for _ in range(2)]
    assert pair.engine.wait_s(1) is None, "no session has ended yet"
    assert report().sessions == SessionCounts(running=2, slots=SLOTS, fit=SLOTS)
    pair.engine.close_session(clients[0].handle)
    assert report().sessions == SessionCounts(running=1, slots=SLOTS, fit=SLOTS)
    assert pair.engine.wait_s(1) is not None


def test_when_the_performer_goes_every_session_hears_it_once(pair: Pair) -> None:
    clients = [Client(pair.engine) for _ in range(SLOTS)]
    pair.until(lambda: all(client.units for client in clients))
    pair.hung_up.set()
    pair.until(lambda: pair.engine.fault)
    pair.engine.close_session(clients[0].handle)
    assert pair.engine.fault == "the performer has gone away"
    assert [client.ends for client in clients] == [[pair.engine.fault]] * SLOTS
    assert Client(pair.engine).handle is None


def test_on_the_clock_every_session_is_served(tiny_family: Family) -> None:
    with started(tiny_family) as pair:
        clients = [Client(pair.engine)]
        pair.until(lambda: len(clients[0].units) > 2)
        clients += [client for _ in range(SLOTS) if (client := Client(pair.engine)).handle is not None]
        pair.until(lambda: all(len(client.units) > 4 for client in clients))
    for client in clients:
        assert client.units == list(range(len(client.units)))

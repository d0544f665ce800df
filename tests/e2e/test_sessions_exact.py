"""A session among others gives bit for bit what it gives alone, whoever joins and leaves meanwhile.

That holds where the processor's kernels give a row of a batch what they give it alone. oneDNN's and the small
models' here do; where they don't (`batch_invariant`) only the words, and sound and pictures nearly, are the
same.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from performer.loop import Performer
from shared.chunking import ChunkMode, Rememberer
from shared.clock import Clock, ManualClock, UnpacedClock
from shared.config import RuntimeConfig, load_config
from shared.errors import LinkClosed
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family, UserUnit
from shared.models.single import Reply, replies_to, reply_to
from shared.processes.model import handshake_params, link_shape, load_model
from shared.processes.rendezvous import RendezvousListener, accept_peers
from shared.processes.roles import THINKER
from thinker.engine.pipeline import Counts, Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import Timings
from thinker.units import AgentUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SLOTS, PHASES = 4, 2
SEED = 11
UNITS = 40  # the rings of the tiny model hold at most 5
TEXTS = {2: ("Good morning, my friend.", "How are you?"), 15: ("And once more.",)}
SIZE = load_config("tiny").model["video"]["height"]
session_numbers = itertools.count(1)


def user_unit(user: int, unit: int) -> UserUnit:
    """Users make noise and move, each in their own way; the first one types, and interrupts once."""
    rng = np.random.default_rng((user, unit))
    frames = rng.integers(0, 40, (4, SIZE, SIZE, 3), dtype=np.uint8)
    frames[:, :, (4 * unit + user) % SIZE] = 255
    return UserUnit(
        pcm=(0.1 * rng.standard_normal(2560)).astype(np.float32), frames=frames,
        texts=TEXTS.get(unit, ()) if user == 0 else (f"I am number {user}.",) if unit == 1 else (),
        interrupted=unit == 9, epoch=int(unit >= 9),
    )  # fmt: skip


def observe(user: int, unit: int) -> UserUnit:
    seen = user_unit(user, unit)
    return UserUnit(pcm=seen.pcm, frames=seen.frames, texts=seen.texts, interrupted=seen.interrupted)


class Script:
    """Gives one user's units, one after the other."""

    def __init__(self, user: int) -> None:
        self._units = (user_unit(user, unit) for unit in itertools.count())

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        return next(self._units)


@dataclass
class Talk:
    """One session of the house."""

    user: int
    seat: RunningSession
    units: list[AgentUnit]
    latents: list[Tensor] = field(default_factory=list)


class House:
    """The Thinker's end of a pair: sessions join and leave."""

    def __init__(self, family: Family, link: LinkEnd, config: RuntimeConfig, clock: Clock) -> None:
        self.talks: list[Talk] = []
        options = PipelineOptions(
            slots=SLOTS, phases=config.phases, exchange=ChunkMode(config.exchange),
            rememberer=Rememberer(config.remember), checked=True,
        )  # fmt: skip
        self.pipeline = Pipeline(
            family=family, link=link, memory=family.allocate(SLOTS), clock=clock, wakeup=link.receiver,
            options=options, timings=Timings(one_host=True), counts=Counts(), on_latents=self._note,
        )  # fmt: skip

    def _note(self, seat: RunningSession, _: int, latents: Tensor) -> None:
        (talk,) = [talk for talk in self.talks if talk.seat is seat]
        talk.latents.append(latents)

    def join(self, user: int) -> Talk:
        units: list[AgentUnit] = []
        number = next(session_numbers)
        seat = self.pipeline.open(session=number, seed=SEED, source=Script(user), on_unit=units.append)
        self.talks.append(Talk(user, seat, units))
        return self.talks[-1]

    def leave(self, talk: Talk) -> None:
        self.pipeline.close(talk.seat)

    def run_until(self, talk: Talk, units: int) -> None:
        while len(talk.units) < units:
            self.pipeline.step()

    def come_and_go(self) -> list[Talk]:
        """One stays all the time; of the others there are none, one, two or three."""
        stays = self.join(0)
        self.run_until(stays, 3)
        first = self.join(1)
        self.run_until(stays, 8)
        others = [self.join(2), self.join(3)]
        self.run_until(stays, 14)
        self.leave(first)
        self.leave(others[0])
        self.run_until(stays, 18)
        late = self.join(2)  # in the place of another
        self.run_until(stays, 30)
        for talk in (others[1], late):
            self.leave(talk)
        self.run_until(stays, UNITS)
        while not self.pipeline.idle:
            self.pipeline.wakeup.wait(None)
            self.pipeline.collect()
        self.leave(stays)
        return [stays, first, *others, late]


CONFIG = replace(load_config("tiny"), sessions=SLOTS, phases=PHASES)


@pytest.fixture(scope="module")
def family() -> Iterator[Family]:
    threads = torch.get_num_threads()
    yield load_model(CONFIG, "cpu")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def alone(family: Family) -> list[list[Reply]]:
    """What each user gets in one process, with nobody else there."""
    return [
        list(reply_to(family, SEED, (observe(user, unit) for unit in range(UNITS)))) for user in range(SLOTS)
    ]


@pytest.fixture(scope="module")
def batch_invariant(family: Family, alone: list[list[Reply]]) -> bool:
    """Whether four that go through every pass together get the same bits as each alone."""
    together = replies_to(
        family, [SEED] * SLOTS, ([observe(user, unit) for user in range(SLOTS)] for unit in range(6))
    )
    return all(
        torch.equal(reply.latents, alone[user][unit].latents)
        for unit, replies in enumerate(together)
        for user, reply in enumerate(replies)
    )


def assert_same(talk: Talk, expected: list[Reply], *, exact: bool) -> None:
    assert len(talk.units) >= 4
    for number, (unit, latents, one) in enumerate(zip(talk.units, talk.latents, expected, strict=False)):
        where = f"unit {number} of user {talk.user}"
        assert unit.unit == number, where
        assert unit.decision == one.decision, where
        if exact:
            assert latents.numpy().tobytes() == one.latents.numpy().tobytes(), where
            assert unit.media.pcm.tobytes() == one.media.pcm.tobytes(), where
            assert unit.media.frames.tobytes() == one.media.frames.tobytes(), where
        else:
            torch.testing.assert_close(latents, one.latents, rtol=1e-3, atol=1e-3)


CLOCKS = pytest.mark.parametrize(
    "make_clock",
    # ticks come as soon as they are waited for
    [UnpacedClock, lambda: ManualClock(time.monotonic())],
    ids=["flat out", "on the clock"],
)


@pytest.fixture(
    scope="module",
    params=[
        ("shm", "packed", "thinker"),
        ("shm", "layerwise", "thinker"),
        ("gloo", "packed", "thinker"),
        ("shm", "packed", "performer"),
    ],
    ids="-".join,
)
def pair(
    request: pytest.FixtureRequest,
    family: Family,
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LinkEnd, RuntimeConfig]]:
    """A Performer in a process of its own, and the link to it."""
    name, exchange, remember = request.param
    config = replace(CONFIG, exchange=exchange, remember=remember)
    file = write_config(tmp_path_factory.mktemp("config") / "four.toml", exchange=exchange, remember=remember)
    with groups() as group, RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        address = f"127.0.0.1:{listener.port}"
        performer = group.start(
            "performer", "--config", str(file), "--link", name, "--rendezvous", address, "--debug"
        )
        with accept_peers(
            listener, handshake_params(family, config, secret=secret, link=name), timeout_s=120
        )["performer"] as link:
            yield link, config
        assert performer.wait() == 1, performer.output
        assert performer.output.splitlines()[-1] == "performer: the thinker has ended"


def write_config(path: Path, **choices: str) -> Path:
    tiny = (Path(__file__).parents[2] / "configs" / "tiny.toml").read_text(encoding="utf-8")
    chosen = "".join(f'{name} = "{choice}"\n' for name, choice in choices.items())
    path.write_text(f"sessions = {SLOTS}\nphases = {PHASES}\n{chosen}{tiny}", encoding="utf-8")
    return path


@CLOCKS
def test_sessions_among_others_get_what_they_get_alone(
    family: Family,
    pair: tuple[LinkEnd, RuntimeConfig],
    alone: list[list[Reply]],
    batch_invariant: bool,
    make_clock: Callable[[], Clock],
) -> None:
    link, config = pair
    talks = House(family, link, config, make_clock()).come_and_go()
    assert len(talks[0].units) >= UNITS
    for talk in talks:
        assert_same(talk, alone[talk.user], exact=batch_invariant)


@pytest.mark.parametrize("rememberer", Rememberer)
@pytest.mark.parametrize("exchange", [ChunkMode.PACKED, ChunkMode.LAYERWISE])
@CLOCKS
def test_the_replica_of_all_sessions_is_exact(
    family: Family, exchange: ChunkMode, rememberer: Rememberer, make_clock: Callable[[], Clock]
) -> None:
    config = replace(CONFIG, exchange=exchange.value, remember=rememberer.value)
    thinker_end, performer_end = loopback_pair(link_shape(family, config))
    remembers = rememberer is Rememberer.PERFORMER
    performer = Performer(family, performer_end, slots=SLOTS, remembers=remembers, checked=True)

    def serve() -> None:
        with performer_end:
            try:
                while True:
                    performer.step()
            except LinkClosed:
                return

    thread = Thread(target=serve, daemon=True)
    thread.start()
    with thinker_end:
        house = House(family, thinker_end, config, make_clock())
        talks = [house.join(user) for user in range(SLOTS)]
        house.run_until(talks[0], 5)
        house.leave(talks[2])
        talks.append(house.join(2))
        while min(len(talk.units) for talk in talks if talk is not talks[2]) < 12:
            house.pipeline.step()
        while not house.pipeline.idle:
            house.pipeline.wakeup.wait(None)
            house.pipeline.collect()
        own = talks[0].seat.state.cache
    thread.join(60)
    assert not thread.is_alive()
    replica = next(iter(performer.sessions.values())).cache
    assert len(performer.sessions) == SLOTS
    for theirs, ours in zip(kept_of(replica), kept_of(own), strict=True):
        assert torch.equal(theirs, ours)


def kept_of(cache: Any) -> tuple[Tensor, Tensor]:
    """All but the scratch places, which are the Performer's own; and what is shown of them."""
    kv, scratch = cache.kv_L2SNKD, cache.layout.scratch
    return torch.cat([kv[:, :, :, : scratch.start], kv[:, :, :, scratch.stop :]], dim=3), cache.hidden_SN

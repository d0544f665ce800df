"""Two processes give byte for byte what one process gives."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from performer.loop import perform
from shared.chunking import ChunkMode, Rememberer
from shared.clock import Clock, ManualClock, UnpacedClock
from shared.config import load_config
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.cache import KVCache
from shared.models.family import Family, UserUnit
from shared.models.single import Reply, reply_to
from shared.models.solver import unit_noise
from shared.processes.model import handshake_params, link_shape, load_model
from shared.processes.rendezvous import RendezvousListener, accept_peers
from shared.processes.roles import THINKER
from thinker.engine.pipeline import Counts, Pipeline, PipelineOptions
from thinker.engine.running_session import Pacing
from thinker.engine.timings import Timings
from thinker.units import AgentUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = load_config("tiny")
SEED = 11
UNITS = 60  # the rings of the tiny model hold at most 5
INTERRUPTED_IN = 9
TEXTS = {2: ("Good morning, my friend.", "How are you?"), INTERRUPTED_IN + 5: ("And once more.",)}
session_numbers = itertools.count(1)


def user_unit(unit: int) -> UserUnit:
    """A user who makes noise, moves, types, and interrupts the agent once."""
    rng = np.random.default_rng(unit)
    size = load_config("tiny").model["video"]["height"]
    frames = rng.integers(0, 40, (4, size, size, 3), dtype=np.uint8)
    for index in range(4):
        frames[index, :, (4 * unit + index) % size] = 255
    return UserUnit(
        pcm=(0.1 * rng.standard_normal(2560)).astype(np.float32), frames=frames, texts=TEXTS.get(unit, ()),
        interrupted=unit == INTERRUPTED_IN, epoch=int(unit >= INTERRUPTED_IN),
    )  # fmt: skip


class Script:
    """Gives the engine one unit after the other."""

    def __init__(self) -> None:
        self._units = itertools.count()

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        return user_unit(next(self._units))


def observe(unit: int) -> UserUnit:
    user = user_unit(unit)
    return UserUnit(pcm=user.pcm, frames=user.frames, texts=user.texts, interrupted=user.interrupted)


class Talk:
    """A session through the pair, from the Thinker's end of a link."""

    def __init__(self, family: Family, link: LinkEnd, clock: Clock, pacing: Pacing, **how: Any) -> None:
        self.units: list[AgentUnit] = []
        self.latents: list[Tensor] = []
        self.pipeline = Pipeline(
            family=family, link=link, memory=family.allocate(1), clock=clock, wakeup=link.receiver,
            on_latents=lambda _, __, latents: self.latents.append(latents),
            options=PipelineOptions(pacing=pacing, checked=True, **how), timings=Timings(one_host=True),
            counts=Counts(),
        )  # fmt: skip

    def run(self, units: int) -> None:
        """Hold the session for so many units."""
        number = next(session_numbers)
        self.seat = self.pipeline.open(session=number, seed=SEED, source=Script(), on_unit=self.units.append)
        while len(self.units) < units:
            self.pipeline.step()
        while not self.pipeline.idle:
            self.pipeline.wakeup.wait(None)
            self.pipeline.collect()
        self.pipeline.close(self.seat)


@pytest.fixture(scope="module")
def family() -> Iterator[Family]:
    threads = torch.get_num_threads()
    yield load_model(CONFIG, "cpu")
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def expected(family: Family) -> list[Reply]:
    """What one process gives."""
    return list(reply_to(family, SEED, map(observe, range(UNITS))))


@pytest.fixture(scope="module", params=["shm", "gloo"])
def link(
    request: pytest.FixtureRequest,
    family: Family,
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
) -> Iterator[LinkEnd]:
    """A Performer in a process of its own, and the link to it."""
    name = request.param
    with groups() as group, RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        address = f"127.0.0.1:{listener.port}"
        performer = group.start(
            "performer", "--config", "tiny", "--link", name, "--rendezvous", address, "--debug"
        )
        with accept_peers(
            listener, handshake_params(family, CONFIG, secret=secret, link=name), timeout_s=120
        )["performer"] as link:
            assert link.kind == name
            yield link
        assert performer.wait() == 1, performer.output
        assert performer.output.splitlines()[-1] == "performer: the thinker has ended"


def assert_same(talk: Talk, expected: list[Reply]) -> None:
    for number, (unit, latents, one) in enumerate(zip(talk.units, talk.latents, expected, strict=False)):
        assert unit.unit == number
        assert unit.decision == one.decision
        assert latents.numpy().tobytes() == one.latents.numpy().tobytes(), f"latents of unit {number}"
        assert unit.media.pcm.tobytes() == one.media.pcm.tobytes(), f"sound of unit {number}"
        assert unit.media.frames.tobytes() == one.media.frames.tobytes(), f"pictures of unit {number}"
    assert number == UNITS - 1


def test_the_script_is_worth_comparing(expected: list[Reply]) -> None:
    speaking = [reply.decision.speaking for reply in expected]
    assert speaking[INTERRUPTED_IN - 1], "the interruption cuts something off"
    assert not speaking[INTERRUPTED_IN + 1]
    assert "".join(reply.decision.text for reply in expected).endswith("And once more. ")
    assert len({reply.latents.numpy().tobytes() for reply in expected}) == UNITS
    for unit, reply in enumerate(expected):
        noise = unit_noise(SEED, unit, tuple(reply.latents.shape))
        assert (reply.latents - noise).std() > 0.05, "the solver has moved far from its noise"


@pytest.mark.parametrize(
    ("make_clock", "pacing"),
    [
        (UnpacedClock, Pacing.EAGER),
        (
            lambda: ManualClock(time.monotonic()),
            Pacing.EAGER,
        ),  # ticks that come as soon as they are waited for
        (lambda: ManualClock(time.monotonic()), Pacing.BOUNDARY),
    ],
    ids=["flat out", "eager", "boundary"],
)
def test_two_processes_give_what_one_gives(
    family: Family,
    link: LinkEnd,
    expected: list[Reply],
    pacing: Pacing,
    make_clock: Callable[[], Clock],
) -> None:
    talk = Talk(family, link, make_clock(), pacing)
    talk.run(UNITS)
    assert_same(talk, expected)
    assert [unit.epoch for unit in talk.units] == [int(n >= INTERRUPTED_IN) for n in range(len(talk.units))]


class Watched:
    """A family that keeps a copy of what is in the cache when a session ends."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.cache: KVCache | None = None
        self.kept, self.hidden_SN = torch.empty(0), torch.empty(0)

    def end_state(self, state: Any) -> None:
        self.cache = state.cache
        self.kept, self.hidden_SN = kept_of(state.cache).clone(), state.cache.hidden_SN.clone()
        self._family.end_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


@pytest.mark.parametrize("exchange", [ChunkMode.PACKED, ChunkMode.LAYERWISE])
@pytest.mark.parametrize("rememberer", Rememberer)
def test_the_replica_of_the_cache_is_exact_after_200_units(
    family: Family, expected: list[Reply], exchange: ChunkMode, rememberer: Rememberer
) -> None:
    own: Any = Watched(family)
    replica: Any = Watched(family)
    config = dataclasses.replace(CONFIG, exchange=exchange.value, remember=rememberer.value)
    thinker_end, performer_end = loopback_pair(link_shape(family, config))
    remembers = rememberer is Rememberer.PERFORMER

    def serve() -> None:
        with performer_end:
            perform(
                replica,
                performer_end,
                slots=1,
                stopping=lambda: False,
                remembers=remembers,
                checked=True,
            )

    performer = Thread(target=serve, daemon=True)
    performer.start()
    with thinker_end:
        how = {"exchange": exchange, "rememberer": rememberer}
        talk = Talk(own, thinker_end, UnpacedClock(), Pacing.EAGER, **how)
        talk.run(200)
    performer.join(60)
    assert not performer.is_alive()
    assert_same(talk, expected)
    assert torch.equal(replica.kept, own.kept)
    assert torch.equal(replica.hidden_SN, own.hidden_SN)
    assert bool((own.hidden_SN == 0).all()), "every place has been written"
    for each in (own, replica):
        assert each.cache is not None
        assert not each.cache.kv_L2SNKD.any(), "nothing is left once the session has ended"


def kept_of(cache: KVCache) -> Tensor:
    """All but the scratch places, which are the Performer's own."""
    kv, scratch = cache.kv_L2SNKD, cache.layout.scratch
    return torch.cat([kv[:, :, :, : scratch.start], kv[:, :, :, scratch.stop :]], dim=3)

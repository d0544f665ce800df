"""Two processes give byte for byte what one gives: over every link of this machine, the shipped model too."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import pytest
import torch
from scripted_sessions import (
    INTERRUPTED_IN,
    LINKS,
    SEED,
    ScriptedPair,
    ScriptedUser,
    assert_same,
    hold_session,
    linked_performer,
    on_the_clock,
    unpaced,
    why_not,
    written,
)
from torch import Tensor

from performer.loop import perform
from shared.chunking import ChunkMode
from shared.clock import Clock
from shared.config import RuntimeConfig, load_config
from shared.devices import check_device
from shared.errors import DeviceError
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.models.single import Reply
from shared.models.solver import unit_noise
from shared.processes.model import link_shape, load_model
from thinker.engine.running_session import Pacing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

UNITS = {"tiny": 60, "pocket": 30}  # more than what the rings of either hold: 5 and 24
LATER = {"tiny": 200, "pocket": 40}
DEVICES = {"nccl": ("cuda:0", "cuda:1"), "xccl": ("xpu:0", "xpu:1")}
ON_CPU = ("cpu", "cpu")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as it ships, its users, and what one process gives user 0."""

    config: RuntimeConfig
    family: Family
    user: ScriptedUser
    expected: list[Reply]

    @property
    def units(self) -> int:
        return len(self.expected)


@pytest.fixture(scope="module")
def models() -> Iterator[Callable[..., Model]]:
    """`models(name, device)`, each loaded once."""
    threads = torch.get_num_threads()
    loaded: dict[tuple[str, str], Model] = {}

    def model(name: str, device: str = "cpu") -> Model:
        if (name, device) not in loaded:
            config = load_config(name)
            family = load_model(config, device)
            user = ScriptedUser(family)
            expected = user.alone(family, UNITS[name])
            loaded[name, device] = Model(config=config, family=family, user=user, expected=expected)
        return loaded[name, device]

    yield model
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=[(name, link) for name in UNITS for link in LINKS], ids="-".join)
def linked(
    request: pytest.FixtureRequest,
    models: Callable[..., Model],
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
) -> Iterator[tuple[Model, LinkEnd]]:
    """A model, and the link to a Performer of it in a process of its own."""
    name, link = request.param
    devices = DEVICES.get(link, ON_CPU)
    if reason := why_not(link, devices[0].partition(":")[0]):
        pytest.skip(reason)
    try:
        for device in devices:
            check_device(device)
    except DeviceError as error:
        pytest.skip(f"{link}: it needs two devices: {error}")
    model = models(name, devices[0])
    with linked_performer(groups, secret, model.family, model.config, name, link, devices) as end:
        yield model, end


@pytest.mark.parametrize("name", UNITS)
def test_the_script_is_worth_comparing(models: Callable[..., Model], name: str) -> None:
    expected = models(name).expected
    decisions = [reply.decision for reply in expected]
    assert decisions[INTERRUPTED_IN - 1].speaking, "the interruption cuts something off"
    assert not decisions[INTERRUPTED_IN + 1].speaking
    text = "".join(decision.text for decision in decisions)
    assert "Good " in text
    assert "friend" not in text, "it was cut off"
    assert text.endswith("thirty. ")
    assert [decision.heard for decision in decisions if decision.heard] == ["name"] * (name == "pocket")
    assert len({reply.latents.numpy().tobytes() for reply in expected}) == len(expected)
    for unit, reply in enumerate(expected):
        noise = unit_noise(SEED, unit, tuple(reply.latents.shape))
        assert (reply.latents - noise).std() > 0.05, "the solver has moved far from its noise"


@pytest.mark.parametrize(
    ("make_clock", "pacing", "chunk_mode"),
    [
        (unpaced, Pacing.EAGER, ChunkMode.PACKED),
        (on_the_clock, Pacing.EAGER, ChunkMode.LAYERWISE),
        (on_the_clock, Pacing.BOUNDARY, ChunkMode.PACKED),
    ],
    ids=["unpaced", "layerwise", "boundary"],
)
def test_two_processes_give_what_one_gives(
    linked: tuple[Model, LinkEnd], make_clock: Callable[[], Clock], pacing: Pacing, chunk_mode: ChunkMode
) -> None:
    model, link = linked
    pair = ScriptedPair(
        model.family, link, model.user, clock=make_clock(), pacing=pacing, chunk_mode=chunk_mode
    )
    session = hold_session(pair, model.units)
    assert_same(session, model.expected, model.units)
    assert [unit.epoch for unit in session.units] == [
        int(unit >= INTERRUPTED_IN) for unit in range(len(session.units))
    ]


class Watched:
    """A family that keeps a copy of what is in the cache when a session ends."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.cache: Any = None
        self.kept, self.hidden_SN = torch.empty(0), torch.empty(0)

    def end_state(self, state: Any) -> None:
        self.cache = state.cache
        self.kept, self.hidden_SN = written(state.cache)
        self._family.end_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


@pytest.mark.parametrize("chunk_mode", [ChunkMode.PACKED, ChunkMode.LAYERWISE])
@pytest.mark.parametrize("name", UNITS)
def test_the_replica_of_the_cache_is_exact_long_after_the_rings_are_full(
    models: Callable[..., Model], name: str, chunk_mode: ChunkMode
) -> None:
    model = models(name)
    own: Any = Watched(model.family)
    replica: Any = Watched(model.family)
    thinker_end, performer_end = loopback_pair(link_shape(model.family, model.config))

    def serve() -> None:
        with performer_end:
            perform(replica, performer_end, slots=1, stopping=lambda: False, checked=True)

    performer = Thread(target=serve, daemon=True)
    performer.start()
    with thinker_end:
        pair = ScriptedPair(own, thinker_end, model.user, clock=unpaced(), chunk_mode=chunk_mode)
        session = hold_session(pair, LATER[name])
    performer.join(60)
    assert not performer.is_alive()
    assert_same(session, model.expected, LATER[name])
    assert torch.equal(replica.kept, own.kept)
    assert torch.equal(replica.hidden_SN, own.hidden_SN)
    assert bool((own.hidden_SN == 0).all()), "every place has been written"
    for each in (own, replica):
        left: Tensor = each.cache.kv_L2SNKD
        assert not left.any(), "nothing is left once the session has ended"

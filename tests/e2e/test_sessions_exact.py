"""A session among others gives bit for bit what it gives alone, whoever joins and leaves meanwhile.

On a CPU every kernel that is used adds up a row in the same order whatever the batch, so nothing less is
demanded there. On a GPU it is not promised, so that is not tested.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any

import pytest
import torch
from scripted_sessions import (
    LINKS,
    ScriptedPair,
    ScriptedSession,
    ScriptedUser,
    assert_same,
    linked_performer,
    on_the_clock,
    unpaced,
    why_not,
    write_config,
    written,
)

from performer.loop import Performer
from shared.chunking import ChunkMode
from shared.clock import Clock
from shared.config import RuntimeConfig, load_config
from shared.errors import LinkClosed
from shared.links.base import LinkEnd
from shared.links.loopback import loopback_pair
from shared.models.family import Family
from shared.models.single import Reply
from shared.processes.model import link_shape, load_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SLOTS, PHASES = 4, 2
UNITS = 40  # more than the rings of either model hold
ON_GPUS = {"xccl", "nccl"}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model with room for four, and what each user gets in one process with no one else there."""

    config: RuntimeConfig
    family: Family
    user: ScriptedUser
    alone: list[list[Reply]]


@pytest.fixture(scope="module")
def models() -> Iterator[Callable[[str], Model]]:
    """`models(name)`, each loaded once."""
    threads = torch.get_num_threads()
    loaded: dict[str, Model] = {}

    def model(name: str) -> Model:
        if name not in loaded:
            config = replace(load_config(name), sessions=SLOTS, phases=PHASES)
            family = load_model(config, "cpu")
            user = ScriptedUser(family)
            alone = [user.alone(family, UNITS, number) for number in range(SLOTS)]
            loaded[name] = Model(config=config, family=family, user=user, alone=alone)
        return loaded[name]

    yield model
    torch.set_num_threads(threads)


def pair_of(
    model: Model, link: LinkEnd, make_clock: Callable[[], Clock], chunk_mode: ChunkMode
) -> ScriptedPair:
    return ScriptedPair(
        model.family, link, model.user, clock=make_clock(), slots=SLOTS, phases=PHASES, chunk_mode=chunk_mode
    )


def come_and_go(pair: ScriptedPair) -> list[ScriptedSession]:
    """One stays all the time; of the others there are none, one, two or three."""
    stays = pair.join(0)
    pair.run_until(stays, 3)
    first = pair.join(1)
    pair.run_until(stays, 8)
    others = [pair.join(2), pair.join(3)]
    pair.run_until(stays, 14)
    pair.leave(first)
    pair.leave(others[0])
    pair.run_until(stays, 18)
    late = pair.join(2)  # in the place of another
    pair.run_until(stays, 30)
    for session in (others[1], late):
        pair.leave(session)
    pair.run_until(stays, UNITS)
    pair.finish()
    pair.leave(stays)
    return [stays, first, *others, late]


CLOCKS = pytest.mark.parametrize("make_clock", [unpaced, on_the_clock], ids=["unpaced", "on the clock"])
CHUNK_MODES = pytest.mark.parametrize("chunk_mode", [ChunkMode.PACKED, ChunkMode.LAYERWISE])


@pytest.fixture(
    scope="module", params=[(name, link) for name in ("tiny", "pocket") for link in LINKS], ids="-".join
)
def linked(
    request: pytest.FixtureRequest,
    models: Callable[[str], Model],
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Model, LinkEnd]]:
    """A model, and the link to a Performer of it in a process of its own."""
    name, link = request.param
    if reason := why_not(link):
        pytest.skip(reason)
    if link in ON_GPUS:
        pytest.skip(f"{link}: on a GPU what a row gets may depend on its batch")
    model = models(name)
    file = write_config(tmp_path_factory.mktemp("config"), name, sessions=SLOTS, phases=PHASES)
    with linked_performer(groups, secret, model.family, model.config, str(file), link) as end:
        yield model, end


@pytest.mark.parametrize(
    ("make_clock", "chunk_mode"),
    [(unpaced, ChunkMode.PACKED), (on_the_clock, ChunkMode.LAYERWISE)],
    ids=["unpaced", "layerwise"],
)
def test_sessions_among_others_get_what_they_get_alone(
    linked: tuple[Model, LinkEnd], make_clock: Callable[[], Clock], chunk_mode: ChunkMode
) -> None:
    model, link = linked
    sessions = come_and_go(pair_of(model, link, make_clock, chunk_mode))
    assert len(sessions[0].units) >= UNITS
    for session in sessions:
        assert_same(session, model.alone[session.user], 4)


@pytest.mark.parametrize("name", ["tiny", "pocket"])
@CHUNK_MODES
@CLOCKS
def test_the_replica_of_all_sessions_is_exact(
    models: Callable[[str], Model], name: str, chunk_mode: ChunkMode, make_clock: Callable[[], Clock]
) -> None:
    model = models(name)
    thinker_end, performer_end = loopback_pair(link_shape(model.family, model.config))
    performer = Performer(model.family, performer_end, slots=SLOTS, checked=True)

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
        pair = pair_of(model, thinker_end, make_clock, chunk_mode)
        sessions = [pair.join(user) for user in range(SLOTS)]
        pair.run_until(sessions[0], 5)
        pair.leave(sessions[2])
        sessions.append(pair.join(2))
        while min(len(session.units) for session in sessions if session is not sessions[2]) < 12:
            pair.pipeline.step()
        pair.finish()
        own = sessions[0].running.state.cache
    thread.join(60)
    assert not thread.is_alive()
    replica = next(iter(performer.sessions.values())).cache
    assert len(performer.sessions) == SLOTS
    for theirs, ours in zip(written(replica), written(own), strict=True):
        assert torch.equal(theirs, ours)

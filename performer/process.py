"""The Performer as a process: joins its Thinker alone, or as the first of several ranks that it starts.

Another rank is a process of the same command. Its leader tells what goes wrong with the group, so it leaves
without a word.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from performer.films import perform_films
from performer.loop import Ends, perform
from shared.config import RuntimeConfig
from shared.devices import check_device, claim_core
from shared.errors import GroupError, RendezvousError
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.models.film import FilmFamily, makes_films
from shared.processes.children import ChildProcesses
from shared.processes.model import handshake_params, load_film_model, load_model
from shared.processes.rendezvous import join_peer
from shared.processes.roles import PERFORMER, THINKER

log = logging.getLogger(__name__)

LOADED = "loaded"


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformerProcess:
    """What a Performer was started with; each method of these is one way to run it, and returns an exit code.

    `devices` has one for each rank; `rendezvous` is where the Thinker listens.
    """

    config: RuntimeConfig
    devices: list[str]
    rendezvous: tuple[str, int]
    link: str
    secret: str = field(repr=False)
    checked: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """One process for all of the solver, or for all films."""
        config, device = self.config, self.devices[0]
        if makes_films(config.family):
            makes = load_film_model(config, device, PERFORMER.loads)
            return self._serve(makes, lambda link: self._perform_films(makes, link))
        family = load_model(config, device, PERFORMER.loads)
        return self._serve(family, lambda link: self._perform(family, link))

    def lead(self, start_rank: Callable[[int, int], list[str]]) -> int:
        """The first rank: starts the others, and talks to the Thinker for all of them.

        `start_rank` makes the command line of a rank from its number and the port of the group's store.
        """
        from performer.broadcast import leader_ends  # noqa: PLC0415 - one process alone needs no ranks
        from performer.group import RankGroup, open_leader_store  # noqa: PLC0415

        config, ranks = self.config, len(self.devices)
        store = open_leader_store()
        with ChildProcesses() as followers:
            for rank in range(1, ranks):
                followers.start(f"rank {rank}", *start_rank(rank, store.port))
            group = RankGroup(
                store, rank=0, ranks=ranks, timeout_s=_group_timeout_s(config),
                exit_status=followers.exit_status,
            )  # fmt: skip
            if not group.wait_for_all("started", self.stop):
                return 0
            group.connect(check_device(self.devices[0])[0])
            family = load_model(config, self.devices[0], PERFORMER.loads, group.shard)
            group.reach(LOADED)
            if not group.wait_for_all(LOADED, self.stop):
                return 0
            log.info("%d ranks are there", ranks)
            return self._serve(family, lambda link: self._perform(family, leader_ends(link, group)))

    def _serve(self, family: Family | FilmFamily, perform_over: Callable[[LinkEnd], None]) -> int:
        params = handshake_params(
            family, self.config, secret=self.secret, link=self.link, device=self.devices[0]
        )
        try:
            link = join_peer(*self.rendezvous, params, role=PERFORMER, at=THINKER, stop=self.stop)
        except RendezvousError:
            if self.stop.is_set():
                return 0
            raise
        with link, claim_core("performer", self.config.pin):
            perform_over(link)
        if self.stop.is_set():
            return 0
        log.info("the thinker has ended")
        return 1

    def _perform(self, family: Family, ends: Ends) -> None:
        perform(
            family, ends, slots=self.config.sessions, stopping=self.stop.is_set, checked=self.checked
        )  # fmt: skip

    def _perform_films(self, family: FilmFamily, link: LinkEnd) -> None:
        perform_films(
            family, link, films=self.config.sessions, stopping=self.stop.is_set, checked=self.checked
        )  # fmt: skip


def follow(config: RuntimeConfig, device: str, *, rank: int, ranks: int, port: int) -> int:
    """Another rank, of the group whose store is at this port; returns an exit code."""
    from performer.broadcast import follower_ends  # noqa: PLC0415 - one process alone needs no ranks
    from performer.group import RankGroup, join_leader_store  # noqa: PLC0415

    group = RankGroup(join_leader_store(port), rank=rank, ranks=ranks, timeout_s=_group_timeout_s(config))
    try:
        group.connect(check_device(device)[0])
        family = load_model(config, device, PERFORMER.loads, group.shard)
        group.reach(LOADED)
        ends = follower_ends(group, family.latent_bytes)
        with claim_core(f"performer rank {rank}", config.pin):
            perform(family, ends, slots=config.sessions, stopping=lambda: False)
    except GroupError as error:
        log.debug("%s", error)
    return 0


def _group_timeout_s(config: RuntimeConfig) -> float:
    """Half of the Thinker's: when it gives up on a unit, the group has told why already."""
    return config.solve_timeout_s / 2

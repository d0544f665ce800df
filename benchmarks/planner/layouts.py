"""Ways to use N devices: cells of Thinkers, Performers and decoder shards, and copies of them."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.planner.profile import Profile

MOST_OF_A_ROLE = 3  # Thinkers, Performers or shards in a cell; more of them are copies of smaller cells


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Devices that share sessions. No Performers: every Thinker does all the work of its sessions.

    `ranks` Performer devices solve together as one. With no shards the Thinkers decode.
    """

    thinkers: int = 1
    performers: int = 0
    ranks: int = 1
    shards: int = 0

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.thinkers + self.performers * self.ranks + self.shards

    @property
    def one_process(self) -> bool:
        """Whether there is no split."""
        return self.performers == 0

    @property
    def kind(self) -> str:
        """What is special about it, for tables: of every kind the best is shown."""
        if self.one_process:
            return "one process"
        parts = ["pair" if self.thinkers == self.performers == 1 else "uneven"]
        parts += ["ranks"] * (self.ranks > 1) + ["shards"] * (self.shards > 0)
        return ", ".join(parts)

    def for_one_session(self, profile: Profile) -> bool:
        """Whether a single session has a use for every device."""
        alone = self.thinkers == 1 and self.performers <= 1
        return alone and (self.shards <= 1 or profile.splits_decode)

    def __str__(self) -> str:
        """Such as "2T+P(4)+D": two Thinkers, one Performer of four ranks, one decoder shard."""
        if self.one_process:
            return "one process"
        if self == PAIR:
            return "pair"
        ranks = f"({self.ranks})" * (self.ranks > 1)
        roles = [_count(self.thinkers, "T"), _count(self.performers, "P") + ranks]
        return "+".join(roles + [_count(self.shards, "D")] * (self.shards > 0))

    def memory_bytes(self, profile: Profile, sessions: int) -> int:
        """Weights and caches on the fullest device of the cell.

        Performer ranks share out weights and caches. A shard is counted as if it held all of a Thinker's
        weights, since a profile does not list the decoder's apart.
        """
        sizes = profile.sizes
        thinker = sizes.thinker_weights + sizes.shared_weights
        thinker += math.ceil(sessions / self.thinkers) * sizes.session_cache
        if self.one_process:
            return thinker + sizes.performer_weights
        performer = sizes.performer_weights + sizes.shared_weights
        performer += math.ceil(sessions / self.performers) * sizes.session_cache
        return max(thinker, math.ceil(performer / self.ranks))


ONE_PROCESS = Cell()
PAIR = Cell(performers=1)


def cells(profile: Profile, devices: int) -> Iterator[Cell]:
    """Every cell that fits on so many devices and is no copy of a smaller one."""
    yield ONE_PROCESS
    some = range(1, MOST_OF_A_ROLE + 1)
    if profile.splits_decode:
        shard_counts = [0, *(count for count, _ in profile.decode_speed_up)]
    else:
        shard_counts = [0, *some]
    all_ranks = [count for count, _ in profile.rank_speed_up]
    for thinkers, performers, ranks, shards in itertools.product(some, some, all_ranks, shard_counts):
        cell = Cell(thinkers=thinkers, performers=performers, ranks=ranks, shards=shards)
        if math.gcd(thinkers, performers, shards) == 1 and cell.devices <= devices:
            yield cell


def _count(number: int, role: str) -> str:
    return f"{number}{role}" if number > 1 else role

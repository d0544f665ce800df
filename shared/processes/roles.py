"""The roles that a process can have. A new kind of process is an entry here, and the command that runs it."""

from dataclasses import dataclass

from shared.models.family import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessRole:
    """One kind of process."""

    name: str
    """As commands, logs and links call it."""
    loads: Role
    """The part of a model that it holds."""
    peers: tuple[str, ...] = ()
    """Roles that join it at its rendezvous; it has a link to one process of each."""


THINKER = ProcessRole(name="thinker", loads=Role.THINKER, peers=("performer",))
PERFORMER = ProcessRole(name="performer", loads=Role.PERFORMER)
ROLES = {role.name: role for role in (THINKER, PERFORMER)}

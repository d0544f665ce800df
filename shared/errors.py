"""Faults that the runtime foresees: each is one line that a user can act on."""


class RuntimeFault(Exception):  # noqa: N818 — the root of the tree; its leaves say Error
    """A fault with a message for the user: scripts print it, never a traceback, and leave with status 1."""


class ConfigError(RuntimeFault):
    """A config field or an argument has a wrong value; the message names both."""


class LinkError(RuntimeFault):
    """The exchange between Thinker and Performer failed."""


class LinkTimeout(LinkError):  # noqa: N818
    """The peer is alive but no message, or no free buffer, came in time."""


class LinkClosed(LinkError):  # noqa: N818
    """The peer is gone or this end was closed; nothing more will cross."""


class LinkUnavailable(LinkError):  # noqa: N818
    """A link was asked for that this machine can't provide; the message says what is missing."""


class SliceError(LinkError):
    """A message is too short, of another version, or fails its checksum."""


class GroupError(RuntimeFault):
    """The ranks of a Performer group can't go on together; the message names rank, unit and what happened."""


class RendezvousError(RuntimeFault):
    """Thinker and Performer did not meet, or disagree; the message names both sides' values."""


class AddressError(RuntimeFault):
    """The server can't listen on an address; the message names it and says why."""


class CheckpointError(RuntimeFault):
    """Weights are missing, damaged or belong to another config."""


class DeviceError(RuntimeFault):
    """A device is missing, out of memory or failed."""

"""Both ends of a link in one process: for tests, and for running a model without a second process."""

from shared.links.base import LinkEnd, LinkShape


def loopback_pair(shape: LinkShape) -> tuple[LinkEnd, LinkEnd]:
    """The Thinker's and the Performer's end of one link."""
    raise NotImplementedError

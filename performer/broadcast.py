"""What the ranks of a group have for a link: the leader passes on what it receives, the others hear it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from performer.group import Group
from performer.loop import Answers, Messages
from shared.errors import LinkTimeout
from shared.links.base import A_MESSAGE, LinkEnd, Message
from shared.slices import SliceHeader


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEnds:
    """Both directions, as the Performer's loop wants them."""

    sender: Answers
    receiver: Messages


def leading(link: LinkEnd, group: Group) -> GroupEnds:
    """The leader's: the link, where every message that comes goes to the other ranks too."""
    return GroupEnds(sender=link.sender, receiver=_Relay(link.receiver, group))


def following(group: Group, latent_bytes: int) -> GroupEnds:
    """A follower's: it hears what its leader was sent, and what it answers goes nowhere."""
    return GroupEnds(sender=_Nobody(latent_bytes), receiver=_Hearing(group))


class _Relay:
    """The link's receiver, with a group that hears everything."""

    def __init__(self, receiver: Messages, group: Group) -> None:
        self._receiver = receiver
        self._group = group

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> Message:
        """The next message, on its way to the others; raises a GroupError when one of them has ended."""
        try:
            message = self._receiver.receive(timeout_s, what)
        except LinkTimeout:
            self._group.check()
            raise
        self._group.tell(message)
        return message

    def release(self) -> None:
        """Give the buffer back, once all have what was in it."""
        self._group.settle()
        self._receiver.release()


class _Hearing:
    """A follower's receiver: waits for the leader, however long it takes."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> Message:
        """What the leader has received."""
        del timeout_s, what
        return self._group.hear()

    def release(self) -> None:
        """Nothing to give back."""


class _Nobody:
    """A follower's sender."""

    def __init__(self, num_bytes: int) -> None:
        self._room = torch.empty(num_bytes, dtype=torch.uint8)

    def reserve(self, timeout_s: float, what: str = A_MESSAGE) -> Tensor:
        """Room for latents."""
        del timeout_s, what
        return self._room

    def send(self, header: SliceHeader) -> None:
        """The leader sends the same."""

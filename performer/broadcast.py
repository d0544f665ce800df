"""What the ranks of a group have for a link: the leader broadcasts what it receives to the others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from performer.group import RankGroup
from performer.loop import Answers, Messages
from shared.errors import LinkTimeout
from shared.links.base import A_MESSAGE, LinkEnd, LinkMessage
from shared.slices import SliceHeader


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnds:
    """Both directions, as the Performer's loop wants them."""

    sender: Answers
    receiver: Messages


def leader_ends(link: LinkEnd, group: RankGroup) -> RankEnds:
    """The leader's: the link, where every message that comes is broadcast to the other ranks."""
    return RankEnds(sender=link.sender, receiver=_BroadcastingReceiver(link.receiver, group))


def follower_ends(group: RankGroup, latent_bytes: int) -> RankEnds:
    """A follower's: it receives what its leader was sent; its latents are dropped."""
    return RankEnds(sender=_DroppingSender(latent_bytes), receiver=_FollowerReceiver(group))


class _BroadcastingReceiver:
    """The link's receiver, with a group that gets every message too."""

    def __init__(self, receiver: Messages, group: RankGroup) -> None:
        self._receiver = receiver
        self._group = group

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> LinkMessage:
        """The next message, on its way to the others; raises a GroupError when one of them has ended."""
        try:
            message = self._receiver.receive(timeout_s, what)
        except LinkTimeout:
            self._group.check()
            raise
        self._group.begin_broadcast(message)
        return message

    def release(self) -> None:
        """Give the buffer back, once all have what was in it."""
        self._group.finish_broadcast()
        self._receiver.release()


class _FollowerReceiver:
    """A follower's receiver: waits for the leader, however long it takes."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group

    def receive(self, timeout_s: float, what: str = A_MESSAGE) -> LinkMessage:
        del timeout_s, what
        return self._group.receive_broadcast()

    def release(self) -> None:
        """Nothing to give back."""


class _DroppingSender:
    """A follower's sender: the leader sends the same latents."""

    def __init__(self, num_bytes: int) -> None:
        self._room = torch.empty(num_bytes, dtype=torch.uint8)

    def reserve(self, timeout_s: float, what: str = A_MESSAGE) -> Tensor:
        del timeout_s, what
        return self._room

    def send(self, header: SliceHeader) -> None:
        """Drop them."""

    def wipe(self) -> None:
        self._room.zero_()

    def wiped(self) -> bool:
        return True

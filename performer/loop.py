"""The Performer's loop: receive a slice, append it, solve when it is a state slice, return the latents."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.models.layout import Block
from shared.slices import Flags, Kind, SliceHeader, describe

WAIT_S = 0.5  # how often a wait looks at `stopping`
RETURN_WITHIN_S = 5.0


def perform(
    family: Family[Any], link: LinkEnd, *, stopping: Callable[[], bool], checked: bool = False
) -> None:
    """Serve the Thinker at the other end of `link` until it goes, or until `stopping()` says so.

    Raises:
        LinkError: the exchange failed in another way than by the Thinker's end.
    """
    performer = Performer(family, link, checked=checked)
    with suppress(LinkClosed):
        while not stopping():
            performer.step()


class Performer:
    """The sessions' replicas of the cache, and the one thing that is done with them."""

    def __init__(self, family: Family[Any], link: LinkEnd, *, checked: bool) -> None:
        self.sessions: dict[int, Any] = {}
        self._family = family
        self._link = link
        self._checked = checked
        self._append_ns = 0  # of the slices since the last latents

    def step(self) -> None:
        """Wait a little for a slice and do what it asks for.

        Raises:
            LinkError: the Thinker is gone (`LinkClosed`), or sent something that makes no sense.
        """
        try:
            header, payload = self._link.receiver.receive(WAIT_S)
        except LinkTimeout:
            return
        received_ns = time.monotonic_ns()
        self._take_in(header, payload)
        self._link.receiver.release()
        self._append_ns += time.monotonic_ns() - received_ns
        if header.kind is Kind.STATE:
            solving_ns = time.monotonic_ns()
            latents = self._family.solve(self.sessions[header.session], header.unit).cpu()
            self._return(header, latents, received_ns, time.monotonic_ns() - solving_ns)

    def _take_in(self, header: SliceHeader, payload: Tensor) -> None:
        if header.kind is Kind.RESET:
            self.sessions[header.session] = self._family.init_state(int(payload.view(torch.int64)))
        elif header.session not in self.sessions:
            raise SliceError(f"a slice of session {header.session} came before the session began")
        elif header.kind is Kind.END:
            del self.sessions[header.session]
        elif header.kind in (Kind.STATE, Kind.REMEMBER):
            block = Block[header.kind.name]
            self._family.append(self.sessions[header.session], block, header.unit, payload)

    def _return(self, state: SliceHeader, latents: Tensor, received_ns: int, solve_ns: int) -> None:
        room = self._link.sender.reserve(RETURN_WITHIN_S, describe(Kind.LATENTS, state.unit))
        room[: latents.nbytes].view(latents.dtype).copy_(latents)
        header = SliceHeader(
            kind=Kind.LATENTS, session=state.session, epoch=state.epoch, unit=state.unit,
            payload_bytes=latents.nbytes, flags=Flags.CHECKED if self._checked else Flags.NONE,
            received_at_ns=received_ns, append_ns=self._append_ns, solve_ns=solve_ns,
        )  # fmt: skip
        self._append_ns = 0
        self._link.sender.commit(header)

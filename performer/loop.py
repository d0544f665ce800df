"""The Performer's loop: receive a slice, import it, solve when a batch is complete, return the latents."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.links.base import LinkMessage
from shared.models.family import Family
from shared.models.layout import KVBlock
from shared.slices import Flags, Kind, SliceHeader, describe

WAIT_S = 0.5  # how often a wait looks at `stopping`
RETURN_WITHIN_S = 5.0


class Answers(Protocol):
    """What the loop needs of a `Sender`."""

    def reserve(self, timeout_s: float, what: str = ...) -> Tensor: ...
    def send(self, header: SliceHeader) -> None: ...
    def wipe(self) -> None: ...
    def wiped(self) -> bool: ...


class Messages(Protocol):
    """What the loop needs of a `Receiver`."""

    def receive(self, timeout_s: float, what: str = ...) -> LinkMessage: ...
    def release(self) -> None: ...


class Ends(Protocol):
    """Both directions: a `LinkEnd`, or what a rank of a group has for one."""

    @property
    def sender(self) -> Answers: ...
    @property
    def receiver(self) -> Messages: ...


def perform(
    family: Family, link: Ends, *, slots: int, stopping: Callable[[], bool], checked: bool = False
) -> None:
    """Serve the Thinker at the other end of `link` until it goes, or until `stopping()` says so.

    Raises:
        LinkError: the exchange failed in another way than by the Thinker's end.
    """
    performer = Performer(family, link, slots=slots, checked=checked)
    with suppress(LinkClosed):
        while not stopping():
            performer.step()


class Performer:
    """The sessions' replica of the cache, and the one thing that is done with it."""

    def __init__(self, family: Family, link: Ends, *, slots: int, checked: bool) -> None:
        self.sessions: dict[int, Any] = {}
        self._family = family
        self._memory = family.allocate(slots)
        self._link = link
        self._checked = Flags.CHECKED if checked else Flags.NONE
        self._batch: dict[int, SliceHeader] = {}  # sessions whose unit is to be solved
        self._append_ns = 0  # of the slices since the last latents

    def step(self) -> None:
        """Wait a little for a slice and do what it asks for; a LinkError when the Thinker is gone or errs."""
        try:
            header, payload = self._link.receiver.receive(WAIT_S)
        except LinkTimeout:
            self._link.sender.wiped()
            return
        received_ns = time.monotonic_ns()
        self._take_in(header, payload)
        self._link.receiver.release()
        self._append_ns += time.monotonic_ns() - received_ns
        if header.kind is Kind.STATE:
            self._batch[header.session] = header
            if not header.flags & Flags.MORE:
                self._solve(received_ns)

    def _take_in(self, header: SliceHeader, payload: Tensor) -> None:
        if header.kind is Kind.RESET:
            seed, slot = payload.view(torch.int64).tolist()
            self.sessions[header.session] = self._family.init_state(self._memory, slot, seed)
        elif header.session not in self.sessions:
            raise SliceError(f"a slice of session {header.session} came before the session began")
        elif header.kind is Kind.END:
            self._batch.pop(header.session, None)
            self._family.end_state(self.sessions.pop(header.session))
            self._link.sender.wipe()
        elif header.kind in (Kind.STATE, Kind.COMMIT):
            state, block = self.sessions[header.session], KVBlock[header.kind.name]
            self._family.import_kv(state, block, header.unit, payload, header.layer)

    def _solve(self, received_ns: int) -> None:
        batch, self._batch = list(self._batch.values()), {}
        began_ns = time.monotonic_ns()
        states = [self.sessions[header.session] for header in batch]
        latents = [y.cpu() for y in self._family.solve(states, [header.unit for header in batch])]
        solve_ns = time.monotonic_ns() - began_ns
        for row, (header, y) in enumerate(zip(batch, latents, strict=True)):
            more = Flags.NONE if row + 1 == len(batch) else Flags.MORE
            self._return(header, y, more, received_ns, solve_ns)
        self._append_ns = 0

    def _return(
        self, state: SliceHeader, latents: Tensor, more: Flags, received_ns: int, solve_ns: int
    ) -> None:
        room = self._link.sender.reserve(RETURN_WITHIN_S, describe(Kind.LATENTS, state.unit))
        room[: latents.nbytes].view(latents.dtype).copy_(latents)
        header = SliceHeader(
            kind=Kind.LATENTS, session=state.session, unit=state.unit,
            payload_bytes=latents.nbytes, flags=more | self._checked, received_at_ns=received_ns,
            append_ns=self._append_ns, solve_ns=solve_ns,
        )  # fmt: skip
        self._link.sender.send(header)

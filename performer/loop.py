"""The Performer's loop: receive a slice, append it, solve when it is a state slice, return the latents."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from typing import Any

import torch

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.links.base import LinkEnd
from shared.models.family import Family
from shared.models.layout import Block
from shared.slices import HEADER_BYTES, Kind, SliceHeader, seal, unseal

log = logging.getLogger(__name__)

SEED = struct.Struct("<q")  # payload of a reset: the seed of the session that begins
BLOCKS = {Kind.STATE: Block.STATE, Kind.REMEMBER: Block.REMEMBER}
WAIT_S = 0.5
RETURN_WITHIN_S = 5.0


def perform(
    family: Family[Any], link: LinkEnd, *, stopping: Callable[[], bool], checked: bool = False
) -> None:
    """Serve the Thinker at the other end of `link` until it goes, or until `stopping()` says so.

    Raises:
        LinkError: the exchange failed in another way than by the Thinker's end.
    """
    sessions: dict[int, Any] = {}
    while not stopping():
        try:
            message = link.receiver.receive(WAIT_S)
        except LinkTimeout:
            continue
        except LinkClosed:
            return
        received_ns = time.monotonic_ns()
        header, payload = unseal(message)
        if header.kind in BLOCKS:
            family.append(_session(sessions, header), BLOCKS[header.kind], header.unit, payload)
        elif header.kind is Kind.RESET:
            sessions[header.session] = family.init_state(*SEED.unpack(payload))
        elif header.kind is Kind.END:
            sessions.pop(header.session, None)
        payload.release()
        link.receiver.release()
        if header.kind is Kind.STATE:
            appended_ns = time.monotonic_ns()
            latents = family.solve(_session(sessions, header), header.unit)
            timing = (received_ns, appended_ns - received_ns, time.monotonic_ns() - appended_ns)
            _return(link, header, latents, timing, checked=checked)


def _session(sessions: dict[int, Any], header: SliceHeader) -> Any:
    if header.session not in sessions:
        raise SliceError(f"a slice of session {header.session} came before the session began")
    return sessions[header.session]


def _return(
    link: LinkEnd, state: SliceHeader, latents: torch.Tensor, timing: tuple[int, int, int], *, checked: bool
) -> None:
    received_ns, append_ns, solve_ns = timing
    buffer = link.sender.reserve(RETURN_WITHIN_S)
    size = latents.nbytes
    torch.frombuffer(buffer, dtype=latents.dtype, offset=HEADER_BYTES, count=latents.numel()).copy_(latents)
    header = SliceHeader(
        kind=Kind.LATENTS, session=state.session, epoch=state.epoch, unit=state.unit, payload_bytes=size,
        sent_at_ns=time.monotonic_ns(), received_at_ns=received_ns, append_ns=append_ns, solve_ns=solve_ns,
    )  # fmt: skip
    link.sender.commit(seal(buffer, header, checked=checked))

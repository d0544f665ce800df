"""The Performer's loop for films: take messages, denoise one block of one film, send it, remember it.

A block is denoised for a credit alone, in order, and its latents leave before the network runs over them
once more to remember them: the Thinker decodes them meanwhile. Films take turns, a block each. Messages are
looked at between the steps of a block, so that a film whose client left, or whose prompt changed, is not made
further.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from shared.errors import LinkClosed, LinkTimeout, SliceError
from shared.film_messages import SceneMessage, unpack_scene
from shared.links.base import LinkEnd
from shared.models.film import FilmFamily
from shared.slices import Flags, Kind, SliceHeader, describe

WAIT_S = 0.5  # how often a wait looks at `stopping`
SEND_WITHIN_S = 60.0  # the Thinker has buffers for every credit that it gave


def perform_films(
    family: FilmFamily, link: LinkEnd, *, films: int, stopping: Callable[[], bool], checked: bool = False
) -> None:
    """Serve the Thinker at the other end of `link` until it goes, or until `stopping()` says so.

    Raises:
        LinkError: the exchange failed in another way than by the Thinker's end.
    """
    performer = FilmPerformer(family, link, films=films, checked=checked)
    with suppress(LinkClosed):
        while not stopping():
            performer.step()


@dataclass(eq=False)
class _Film:
    """What is known of one film here."""

    number: int
    state: Any
    scenes: deque[tuple[int, SceneMessage]] = field(default_factory=deque)
    """Prompts to come, each with the block from which it holds."""
    credits: deque[SliceHeader] = field(default_factory=deque)
    prompts: int = 0
    """That were taken up so far: latents say of which they are."""
    voided: bool = False
    """What is being denoised is not wanted any more."""


class FilmPerformer:
    """Films, the memory for them, and whose turn it is."""

    def __init__(self, family: FilmFamily, link: LinkEnd, *, films: int, checked: bool) -> None:
        self._family = family
        self._link = link
        self._checked = Flags.CHECKED if checked else Flags.NONE
        self._free = family.allocate(films)
        self._films: dict[int, _Film] = {}
        self._turns: deque[int] = deque()
        self._remember_ns = 0  # of the last block that was remembered

    def step(self) -> None:
        """Take what has come, and make one block if one may be made; a LinkError when the Thinker is gone."""
        self._take_all(0 if self._next_film() else WAIT_S)
        if (film := self._next_film()) is not None:
            self._make_block(film)

    def _next_film(self) -> _Film | None:
        """Whose turn it is, of those that have a credit."""
        for _ in range(len(self._turns)):
            film = self._films[self._turns[0]]
            if film.credits:
                return film
            self._turns.rotate(-1)
        return None

    def _take_all(self, wait_s: float) -> None:
        """Take all messages that are here, waiting for the first one."""
        receiver = self._link.receiver
        with suppress(LinkTimeout):
            message = receiver.receive(wait_s) if wait_s else receiver.poll()
            while message is not None:
                self._take(message.header, message.payload)
                receiver.release()
                message = receiver.poll()

    def _take(self, header: SliceHeader, payload: torch.Tensor) -> None:
        number, film = header.session, self._films.get(header.session)
        match header.kind:
            case Kind.SCENE:
                if film is None:
                    film = self._films[number] = _Film(number, self._free.pop())
                    self._turns.append(number)
                if not header.unit:
                    film.voided = True
                film.scenes.append((header.unit, unpack_scene(payload)))
            case Kind.CREDIT if film is not None:
                film.credits.append(header)
            case Kind.END if film is not None:
                film.voided = True
                del self._films[number]
                self._turns.remove(number)
                self._family.end_film(film.state)
                self._free.append(film.state)
                self._link.sender.wipe()
            case _:
                raise SliceError(f"{describe(header.kind, header.unit)} of a film that did not begin")

    def _make_block(self, film: _Film) -> None:
        """Denoise, send, remember; or leave it, where the film ended or its prompt changed meanwhile."""
        credit = film.credits[0]
        block = credit.unit
        self._take_up_scenes(film, block)
        began_ns = time.monotonic_ns()

        def stopped() -> bool:
            self._take_all(0)
            return film.voided

        latents = self._family.denoise(film.state, block, stopped)
        if latents is None:
            return
        denoise_ns = time.monotonic_ns() - began_ns
        film.credits.popleft()
        self._turns.rotate(-1)
        room = self._link.sender.reserve(SEND_WITHIN_S, describe(Kind.LATENTS, block))
        room[: self._family.latent_bytes].view(latents.dtype).copy_(latents.flatten())
        self._link.sender.send(
            SliceHeader(
                kind=Kind.LATENTS, session=film.number, unit=block, layer=film.prompts,
                payload_bytes=self._family.latent_bytes, flags=self._checked, received_at_ns=began_ns,
                append_ns=self._remember_ns, solve_ns=denoise_ns,
            )
        )  # fmt: skip
        began_ns = time.monotonic_ns()
        if not credit.flags & Flags.LAST:
            self._family.remember(film.state, latents)
        self._remember_ns = time.monotonic_ns() - began_ns

    def _take_up_scenes(self, film: _Film, block: int) -> None:
        """Prompts that hold from this block on."""
        film.voided = False
        while film.scenes and film.scenes[0][0] <= block:
            _, scene = film.scenes.popleft()
            film.prompts += 1
            if scene.begins:
                self._family.begin_scene(film.state, scene.prompt, scene.seed)
            else:
                self._family.change_prompt(film.state, scene.prompt)

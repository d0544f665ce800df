"""The model thread of films: gives credits, decodes what comes back, hands frames to the video encoder.

For each film one block may be denoised, one decoded, and one may lie between: the credit for block n + 2 is
given when block n begins to be decoded. Latents are never dropped or reordered, since a decoder remembers; a
film whose frames nobody takes is not decoded further, so that in the end none of it is denoised either.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from shared.devices import claim_core
from shared.errors import LinkClosed, RuntimeFault
from shared.film_messages import SceneMessage, pack_scene
from shared.film_request import FilmBlock, FilmRequest, blocks_of
from shared.links.base import LinkEnd
from shared.links.choose import ONE_HOST_LINKS
from shared.links.waiting import AnyOf, WakeEvent
from shared.memory import rss_mb
from shared.models.film import FilmFamily, FilmFormat
from shared.reporting import Stages
from shared.slices import Flags, Kind, SliceHeader, describe
from thinker.film.video_encoder import EncodedBlock, VideoEncoder, VideoShape, open_encoder, vaapi_works
from thinker.report import EventLoopLag, Percentiles, ProcessMemory

log = logging.getLogger(__name__)

BLOCKS_AHEAD = 2  # one is denoised, one waits, while one is decoded
UNTAKEN_BLOCKS = 2  # encoded ones that a client has not taken yet; then its film waits
MOST_PROMPTS = 60_000  # of a film: latents tell of theirs in 16 bits
SEND_WITHIN_S = 60.0  # the Performer takes messages between the steps of a block
STAGES = ("denoise", "remember", "return", "decode", "encode")

Links = Mapping[str, LinkEnd]
"""By the role of the process at the other end."""


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """When a block was where; seconds of this process's monotonic clock."""

    stage: str
    process: str
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fragment:
    """A block as it goes to the client."""

    block: FilmBlock
    prompt: str
    encoded: EncodedBlock
    stages: tuple[StageTime, ...]


@dataclass(eq=False, kw_only=True)
class Film:
    """One film under way. What it holds besides is the engine's own business."""

    number: int
    request: FilmRequest
    on_fragment: Callable[[Fragment], None]
    """Called with every block, in order, on a thread of the engine's."""
    on_end: Callable[[str], None]
    """Called with the reason, if the film can't be made further."""
    to_grant: Iterator[FilmBlock]
    prompts: list[str] = field(default_factory=list)
    """That the Performer was sent; latents tell which of them they are of."""
    granted: deque[FilmBlock] = field(default_factory=deque)
    arrived: deque["_Latents"] = field(default_factory=deque)
    untaken: int = 0
    """Blocks that were decoded, and not taken by the client."""
    scene_sent: int = -1
    decoder: Any = None
    encoder: VideoEncoder | None = None


@dataclass(frozen=True, slots=True)
class _Latents:
    """A block's latents as they came."""

    latents: torch.Tensor
    prompt: str
    stages: tuple[StageTime, ...]


class FilmCounts(msgspec.Struct, kw_only=True):
    """Since the start: films begun, finished, stopped before their end; blocks and frames made."""

    begun: int = 0
    finished: int = 0
    stopped: int = 0
    blocks: int = 0
    frames: int = 0


class FilmReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured since the start; the field names are those of `GET /report`."""

    films: FilmCounts
    running: int
    slots: int
    stages_ms: dict[str, Percentiles]
    first_fragment_ms: Percentiles
    """From a film's beginning to its first block, encoded."""
    latent_bytes: int
    link: str | None
    encoder: str
    rss_mb: ProcessMemory
    model: str
    at: float
    event_loop_lag_ms: EventLoopLag = EventLoopLag()


class FilmEngineLike(Protocol):
    """What the server needs; all of it is called on the event loop, and none of it waits."""

    model: str
    format: FilmFormat
    fault: str | None

    @property
    def ready(self) -> bool: ...
    def read_prompt(self, prompt: str) -> list[str]: ...
    def open_film(
        self,
        request: FilmRequest,
        *,
        on_fragment: Callable[[Fragment], None],
        on_end: Callable[[str], None],
    ) -> Film | None: ...
    def take(self, film: Film) -> None: ...
    def change_prompt(self, film: Film, prompt: str) -> None: ...
    def close_film(self, film: Film) -> None: ...
    def report(self) -> FilmReport: ...


class FilmEngine:
    """`run` is the model thread; the rest is called from the event loop. See `FilmEngineLike`.

    `join` finds the other processes, for as long as it takes; None when told to stop before all are there.
    `films` is how many may be under way at a time.
    """

    def __init__(
        self,
        family: FilmFamily,
        join: Callable[[], Links | None],
        *,
        model: str,
        films: int,
        pin: str = "auto",
        checked: bool = False,
    ) -> None:
        self.model = model
        self.format = family.format
        self.fault: str | None = None
        self.counts = FilmCounts()
        self.stages = Stages()
        self._family = family
        self._join = join
        self._most = films
        self._pin = pin
        self._checked = Flags.CHECKED if checked else Flags.NONE
        self._link: LinkEnd | None = None
        self._lock = threading.Lock()
        self._wake = WakeEvent()
        self._wanted: dict[int, Film] = {}  # that shall run; the model thread follows
        self._prompts: list[tuple[Film, str]] = []  # changes to be sent
        self._running: dict[int, Film] = {}
        self._encoding = ThreadPoolExecutor(1, thread_name_prefix="encode")
        self._begun: dict[int, float] = {}
        self._sent_at: dict[int, float] = {}  # by film: when its last latents left the Performer
        self._clock_offset: float | None = None
        self._stopping = False

    @property
    def ready(self) -> bool:
        return self._link is not None and self.fault is None

    def read_prompt(self, prompt: str) -> list[str]:
        """What of a prompt the model takes for something else, or leaves out."""
        return self._family.read_prompt(prompt)

    def open_film(
        self,
        request: FilmRequest,
        *,
        on_fragment: Callable[[Fragment], None],
        on_end: Callable[[str], None],
    ) -> Film | None:
        """Begin a film; None while as many are under way as there is memory for."""
        with self._lock:
            if not self.ready or len(self._wanted) >= self._most:
                return None
            self.counts.begun += 1
            film = Film(
                number=self.counts.begun, request=request, on_fragment=on_fragment, on_end=on_end,
                to_grant=blocks_of(request, self.format),
            )  # fmt: skip
            self._wanted[film.number] = film
            self._begun[film.number] = time.monotonic()
        self._wake.set()
        return film

    def take(self, film: Film) -> None:
        """The client has taken a block: another one may be decoded."""
        with self._lock:
            film.untaken -= 1
        self._wake.set()

    def change_prompt(self, film: Film, prompt: str) -> None:
        """Go on with another prompt from the next block that is not denoised yet."""
        if len(film.prompts) >= MOST_PROMPTS:
            self._end(film, f"{MOST_PROMPTS} prompts are as many as a film may have")
            return
        with self._lock:
            self._prompts.append((film, prompt))
        self._wake.set()

    def close_film(self, film: Film) -> None:
        """Make it no further; whatever is under way for it is dropped."""
        with self._lock:
            if self._wanted.pop(film.number, None) is not None:
                self.counts.stopped += 1
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """The model thread: join the other processes, then serve until `stop` or the end of one of them."""
        try:
            with claim_core("thinker", self._pin):
                self._run()
        except LinkClosed:
            if not self._stopping:
                self._fail("the performer has gone away")
        except RuntimeFault as fault:
            self._fail(str(fault))
        except Exception:  # the end of this thread must not pass for a quiet one: clients wait for it
            log.exception("the model thread failed")
            self._fail("the model failed; the thinker's log says why")
        finally:
            self._encoding.shutdown()
            self._link = None

    def _run(self) -> None:
        vaapi_works()
        links = self._join()
        if links is None:
            return
        with ExitStack() as stack:
            for link in links.values():
                stack.enter_context(link)
            self._link = link = links["performer"]
            log.info("ready for %d films at a time", self._most)
            waiter = AnyOf(link.receiver, self._wake)
            while not self._stopping:
                self._wake.clear()
                self._open_and_close(link)
                self._receive_all(link)
                film = self._next_to_decode()
                if film is None:
                    waiter.wait(None)
                else:
                    self._decode(film, link)

    def _open_and_close(self, link: LinkEnd) -> None:
        """Do what the event loop has asked for."""
        with self._lock:
            wanted = dict(self._wanted)
            prompts, self._prompts = self._prompts, []
        for number in self._running.keys() - wanted.keys():
            film = self._running.pop(number)
            film.arrived.clear()
            film.decoder = film.encoder = None
            self._begun.pop(number, None)
            self._sent_at.pop(number, None)
            self._send(link, SliceHeader(kind=Kind.END, session=number, unit=0))
        for number, film in wanted.items():
            if number not in self._running:
                self._running[number] = film
                film.encoder = open_encoder(
                    VideoShape(self.format.width, self.format.height, film.request.fps)
                )
                for _ in range(BLOCKS_AHEAD):
                    self._grant(film, link)
        for film, prompt in prompts:
            if film.number in self._running:
                film.prompts.append(prompt)
                scene = SceneMessage(prompt=prompt, seed=film.request.seed, begins=False)
                self._send_scene(link, film, scene, from_block=0)

    def _grant(self, film: Film, link: LinkEnd) -> None:
        """Let the film's next block be denoised, if it has one."""
        block = next(film.to_grant, None)
        if block is None:
            return
        if block.scene != film.scene_sent:
            film.scene_sent = block.scene
            prompt = film.request.scenes[block.scene].prompt
            film.prompts.append(prompt)
            scene = SceneMessage(prompt=prompt, seed=film.request.seed)
            self._send_scene(link, film, scene, from_block=block.number)
        film.granted.append(block)
        flags = Flags.LAST if block.last_of_scene else Flags.NONE
        self._send(link, SliceHeader(kind=Kind.CREDIT, session=film.number, unit=block.number, flags=flags))

    def _send_scene(self, link: LinkEnd, film: Film, scene: SceneMessage, *, from_block: int) -> None:
        room = link.sender.reserve(SEND_WITHIN_S, describe(Kind.SCENE, from_block))
        size = pack_scene(scene, room)
        header = SliceHeader(
            kind=Kind.SCENE, session=film.number, unit=from_block, payload_bytes=size, flags=self._checked
        )
        link.sender.send(header)

    def _send(self, link: LinkEnd, header: SliceHeader) -> None:
        link.sender.reserve(SEND_WITHIN_S, describe(header.kind, header.unit))
        link.sender.send(header)

    def _receive_all(self, link: LinkEnd) -> None:
        """Take in all latents that are here; those of a film that ended are let go."""
        while (message := link.receiver.poll()) is not None:
            header, arrived = message.header, time.monotonic()
            film = self._running.get(header.session)
            if film is not None:
                film.arrived.append(
                    _Latents(
                        message.payload.clone(), film.prompts[header.layer - 1],
                        self._stages_of(header, arrived, link),
                    )
                )  # fmt: skip
            link.receiver.release()

    def _stages_of(self, header: SliceHeader, arrived: float, link: LinkEnd) -> tuple[StageTime, ...]:
        """When the Performer did what, on this process's clock."""
        sent = header.sent_at_ns / 1e9
        delay = arrived - sent  # of two hosts also the difference of their clocks
        if link.kind in ONE_HOST_LINKS:
            self._clock_offset = 0.0
        elif self._clock_offset is None or delay < self._clock_offset:
            self._clock_offset = delay
        offset = self._clock_offset or 0.0
        began = header.received_at_ns / 1e9 + offset
        stages = [
            StageTime(stage="denoise", process="performer", began=began, ended=began + header.solve_ns / 1e9)
        ]
        self.stages.record("denoise", header.solve_ns / 1e9)
        self.stages.record("return", max(0.0, delay - offset))
        before = self._sent_at.get(header.session)
        if before is not None and header.append_ns:
            remembered = StageTime(
                stage="remember", process="performer", began=before, ended=before + header.append_ns / 1e9
            )
            stages.insert(0, remembered)
            self.stages.record("remember", header.append_ns / 1e9)
        self._sent_at[header.session] = sent + offset
        return tuple(stages)

    def _next_to_decode(self) -> Film | None:
        """The film that can be decoded and was decoded least of late: they take turns."""
        for number, film in self._running.items():
            if film.arrived and film.untaken < UNTAKEN_BLOCKS:
                self._running[number] = self._running.pop(number)  # to the end of the order
                return film
        return None

    def _decode(self, film: Film, link: LinkEnd) -> None:
        block, came = film.granted.popleft(), film.arrived.popleft()
        self._grant(film, link)
        if block.of_scene == 0:
            film.decoder = self._family.init_decoder()
        began = time.monotonic()
        frames = self._family.decode(film.decoder, came.latents)[: block.frames]
        ended = time.monotonic()
        self.stages.record("decode", ended - began)
        decoded = StageTime(stage="decode", process="thinker", began=began, ended=ended)
        with self._lock:
            film.untaken += 1
        self._encoding.submit(self._encode, film, block, came, frames, decoded)

    def _encode(
        self, film: Film, block: FilmBlock, came: _Latents, frames: NDArray[np.uint8], decoded: StageTime
    ) -> None:
        """On the encoder's thread."""
        encoder = film.encoder
        if encoder is None:  # the film ended meanwhile
            return
        began = time.monotonic()
        try:
            encoded = encoder.encode(frames, number=block.number, first_frame=block.first_frame)
        except Exception:
            log.exception("a block could not be encoded")
            self._end(film, "the video encoder failed; the thinker's log says why")
            return
        ended = time.monotonic()
        self.stages.record("encode", ended - began)
        if block.number == 0 and film.number in self._begun:
            self.stages.record("first_fragment", ended - self._begun[film.number])
        self.counts.blocks += 1
        self.counts.frames += block.frames
        stage = StageTime(stage="encode", process="thinker", began=began, ended=ended)
        film.on_fragment(
            Fragment(block=block, prompt=came.prompt, encoded=encoded, stages=(*came.stages, decoded, stage))
        )
        if block.last:
            self._finish(film)

    def _finish(self, film: Film) -> None:
        with self._lock:
            if self._wanted.pop(film.number, None) is not None:
                self.counts.finished += 1
        self._wake.set()

    def _end(self, film: Film, reason: str) -> None:
        self.close_film(film)
        film.on_end(reason)

    def _fail(self, reason: str) -> None:
        log.error("%s", reason)
        self.fault = reason
        with self._lock:
            films, self._wanted = list(self._wanted.values()), {}
        for film in films:
            film.on_end(reason)

    def report(self) -> FilmReport:
        return FilmReport(
            films=msgspec.structs.replace(self.counts),
            running=len(self._wanted),
            slots=self._most,
            stages_ms={name: self._percentiles(name) for name in STAGES},
            first_fragment_ms=self._percentiles("first_fragment"),
            latent_bytes=self._family.latent_bytes,
            link=self._link.kind if self._link is not None else None,
            encoder="h264_vaapi" if vaapi_works() else "libx264",
            rss_mb=ProcessMemory(thinker=rss_mb()),
            model=self.model,
            at=time.time(),
        )

    def _percentiles(self, name: str) -> Percentiles:
        return Percentiles(p50=self.stages.percentile_ms(name, 50), p99=self.stages.percentile_ms(name, 99))

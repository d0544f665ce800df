"""The Thinker as a process: the engine on the model thread, the server on the event loop."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette

from shared.chunking import ChunkMode
from shared.config import RuntimeConfig
from shared.errors import RendezvousError
from shared.models.family import Family
from shared.models.film import FilmFamily, makes_films
from shared.processes.model import handshake_params, load_film_model, load_model
from shared.processes.rendezvous import RendezvousListener, accept_peers
from shared.processes.roles import THINKER
from thinker.engine.engine import EngineOptions, Links, ThinkerEngine
from thinker.engine.pipeline import PipelineOptions
from thinker.engine.running_session import Pacing
from thinker.film.engine import FilmEngine, FilmReport
from thinker.report import Report
from thinker.server.app import build_app, build_film_app, serve

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkerProcess:
    """What a Thinker was started with.

    It waits for its peers at `rendezvous` and serves clients at `host` and `port`. `secret` is that of the
    deployment, `token` that of clients.
    """

    config: RuntimeConfig
    device: str
    rendezvous: tuple[str, int]
    link: str
    host: str
    port: int
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    allow_origins: Sequence[str] = ()
    pacing: Pacing = Pacing.EAGER
    seed: int = 0
    checked: bool = False

    def run(self, stop: threading.Event) -> tuple[int, Report | FilmReport]:
        """Serve until `stop` is set or a peer is gone; the exit code, and what was measured."""
        config = self.config
        if makes_films(config.family):
            makes = load_film_model(config, self.device, THINKER.loads)
            with self._listener() as listener:
                films = FilmEngine(
                    makes, self._joining(listener, makes, stop), model=config.name, films=config.sessions,
                    pin=config.pin, checked=self.checked,
                )  # fmt: skip
                return asyncio.run(self._serve(films, build_film_app, stop))
        family = load_model(config, self.device, THINKER.loads)
        options = EngineOptions(
            model=config.name, seed=self.seed, pin=config.pin,
            pipeline=PipelineOptions(
                slots=config.sessions, phases=config.phases, pacing=self.pacing,
                chunk_mode=ChunkMode(config.chunk_mode), checked=self.checked,
                solve_timeout_s=config.solve_timeout_s,
            ),
        )  # fmt: skip
        with self._listener() as listener:
            engine = ThinkerEngine(family, self._joining(listener, family, stop), options)
            return asyncio.run(self._serve(engine, build_app, stop))

    def _listener(self) -> RendezvousListener:
        return RendezvousListener(*self.rendezvous, secret=self.secret, role=THINKER)

    def _joining(
        self, listener: RendezvousListener, family: Family | FilmFamily, stop: threading.Event
    ) -> Callable[[], Links | None]:
        """What finds the other processes."""
        params = handshake_params(family, self.config, secret=self.secret, link=self.link, device=self.device)

        def join() -> Links | None:
            try:
                return accept_peers(listener, params, stop=stop)
            except RendezvousError:
                if stop.is_set():
                    return None
                raise

        return join

    async def _serve(
        self, engine: ThinkerEngine | FilmEngine, build: Callable[..., Starlette], stop: threading.Event
    ) -> tuple[int, Report | FilmReport]:
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def run_engine() -> None:
            try:
                engine.run()
            finally:
                loop.call_soon_threadsafe(over.set)

        def watch() -> None:
            stop.wait()
            with contextlib.suppress(RuntimeError):  # all is over already
                loop.call_soon_threadsafe(over.set)

        app = build(
            engine, host=self.host, token=self.token, operator_secret=self.secret,
            allow_origins=self.allow_origins,
        )  # fmt: skip
        threading.Thread(target=watch, name="signals", daemon=True).start()
        model = threading.Thread(target=run_engine, name="model")
        model.start()
        try:
            await serve(app, host=self.host, port=self.port, stop=over, listening=self._listening)
        finally:
            asked_to = stop.is_set()
            stop.set()  # the model thread may still be waiting for its peers
            engine.stop()
            await asyncio.to_thread(model.join)
        return 0 if asked_to and engine.fault is None else 1, app.state.manager.report()

    def _listening(self, port: int) -> None:
        log.info("serving on http://%s:%d", f"[{self.host}]" if ":" in self.host else self.host, port)

"""A real server on a free port, WebSocket clients, and an engine that echoes when the test says so."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import pytest
import torch
from prometheus_client import Counter
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from protocol import messages as m
from protocol.media import MediaUnit
from protocol.session import ClientProtocol, Send
from shared.config import load_config
from shared.models.family import AgentMedia, Family, StepDecision, UserUnit
from shared.processes.model import load_model
from thinker.report import Percentiles, ProcessMemory, Report, SessionCounts, UnitCounts
from thinker.server.app import build_app, serve
from thinker.units import AgentUnit, MediaSpec, UserSource

SPEC = MediaSpec(
    model="echo", unit_ms=160, fps=25, frames_per_unit=4, sample_rate=16_000, height=64, width=64,
    input_rate=16_000, input_height=32, input_width=32,
)  # fmt: skip
T = TypeVar("T")
PATIENCE_S = 20.0  # of a test for the server; generous, since the machine may be busy


@dataclasses.dataclass(kw_only=True, eq=False)
class EchoSession:
    number: int
    inbox: UserSource
    on_unit: Callable[[AgentUnit], None]
    on_end: Callable[[str], None]
    unit: int = 0
    taken: list[UserUnit] = dataclasses.field(default_factory=list)


class EchoEngine:
    """Answers each user unit with itself: its sound, its last picture enlarged, its text if it can.

    Whoever types is understood to say hello.
    """

    def __init__(self) -> None:
        self.spec = SPEC
        self.ready = True
        self.fault: str | None = None
        self.slots = 1
        self.waits_s: float | None = None
        self.open: list[EchoSession] = []
        self.opened = 0
        self.paints: np.ndarray | None = None  # shown instead of the user
        self._lock = threading.Lock()

    def open_session(
        self, *, inbox: UserSource, on_unit: Callable[[AgentUnit], None], on_end: Callable[[str], None]
    ) -> EchoSession | None:
        if len(self.open) >= self.slots:
            return None
        self.opened += 1
        session = EchoSession(number=self.opened, inbox=inbox, on_unit=on_unit, on_end=on_end)
        self.open.append(session)
        return session

    def close_session(self, handle: Any) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self.open.remove(handle)

    def wait_s(self, position: int) -> float | None:
        return None if self.waits_s is None else position * self.waits_s

    def report(self) -> Report:
        return Report(
            units=UnitCounts(emitted=self.opened),
            model_side_ms=Percentiles(p50=90.5, p99=99.0),
            unit_interval_ms=Percentiles(),
            solve_plus_exchange_ms=Percentiles(),
            loop_ms=Percentiles(),
            stages_ms={"encode": Percentiles(p50=3.0, p99=4.0), "solve": Percentiles(p50=60.0, p99=70.0)},
            deadline_ms=160,
            realtime=True,
            slice_bytes=4096,
            link="loopback",
            pacing="eager",
            sessions=SessionCounts(running=len(self.open), slots=self.slots),
            rss_mb=ProcessMemory(),
            restarts=0,
            model="echo",
            seed=0,
            at=0.0,
        )

    def fail(self, reason: str) -> None:
        """No session will ever run again."""
        self.fault = reason
        for session in self.open:
            session.on_end(reason)

    async def tick(self, times: int = 1) -> None:
        """Make units of every session, on a thread as the model thread would."""
        await asyncio.to_thread(self._tick, times)

    def _tick(self, times: int) -> None:
        for _ in range(times):
            with self._lock:
                sessions = list(self.open)
            for session in sessions:
                user = session.inbox.take()
                session.taken.append(user)
                frames = self.paints if self.paints is not None else user.frames.repeat(2, 1).repeat(2, 2)
                texts = [text for text in user.texts if not text.startswith("…")]
                session.on_unit(
                    AgentUnit(
                        unit=session.unit,
                        epoch=user.epoch,
                        decision=StepDecision(
                            text=" ".join(texts),
                            speaking=bool(texts),
                            refused=tuple(text for text in user.texts if text not in texts),
                            heard="hello" if texts else "",
                        ),
                        media=AgentMedia(pcm=(user.pcm * 32_768).astype(np.int16), frames=frames),
                    )
                )
                session.unit += 1


class Client:
    """One end of a WebSocket; speaks the protocol, or anything else that a test wants sent."""

    def __init__(self, socket: ClientConnection, hello: m.Hello) -> None:
        self.socket = socket
        self.session = ClientProtocol(hello)
        self.acks = True
        self.heard: list[str | bytes] = []

    async def say(self, message: m.ClientMessage) -> None:
        await self.socket.send(self.session.send(message))

    async def send_hello(self) -> None:
        await self.socket.send(self.session.hello())

    async def start(self) -> m.Ready:
        await self.send_hello()
        return await self.next(m.Ready)

    async def send_unit(self, pcm: np.ndarray | None = None, *frames: bytes) -> None:
        audio = b"" if pcm is None else pcm.astype("<i2").tobytes()
        await self.socket.send(self.session.send_unit(audio, frames))

    async def next(self, kind: type[T]) -> T:
        """The next message of one kind; pings are answered, units acknowledged, all else passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for event in self.session.receive(await self.socket.recv()):
                    if isinstance(event, Send):
                        await self.socket.send(event.data)
                    if isinstance(event, MediaUnit) and self.acks:
                        await self.say(m.Ack(unit=event.unit, played_pts=event.pts_us))
                    if isinstance(event, kind):
                        return event

    async def closed(self) -> tuple[int, str]:
        """Read until the server's close; its code and reason."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    self.heard.append(await self.socket.recv())
        assert self.socket.close_code is not None
        return self.socket.close_code, self.socket.close_reason or ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()


class Server:
    """Where the server under test listens, its app and its engine."""

    def __init__(self, app: Starlette, engine: EchoEngine, port: int) -> None:
        self.app = app
        self.engine = engine
        self.port = port
        self.http = f"http://127.0.0.1:{port}"

    async def connect(
        self, hello: m.Hello | None = None, *, query: str = "", name: str = "", **options: Any
    ) -> Client:
        """Open a WebSocket; `name` is what it calls the server, `options` are those of websockets."""
        options = {"subprotocols": [Subprotocol(m.SUBPROTOCOL)], "proxy": None, "max_size": None, **options}
        url = f"ws://{name or f'127.0.0.1:{self.port}'}/v1/session{query}"
        socket = await connect(url, host="127.0.0.1", port=self.port, **options)
        return Client(socket, hello or m.Hello())

    async def tick_through(self, times: int = 1) -> None:
        """Tick, and wait each time until the first session's unit is coded: on its way, or kept back."""
        for _ in range(times):
            await self.engine.tick()
            await self.until(self._is_coded)

    def _is_coded(self) -> bool:
        session = self.engine.open[0]
        outgoing = session.on_unit.__self__.protocol.outgoing  # type: ignore[attr-defined]
        return session.unit - 1 in {*outgoing._in_flight, *(unit.unit for unit in outgoing._waiting)}

    async def until(self, true: Callable[[], bool]) -> None:
        """Let the server run until something is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110 - what is waited for knows of no event
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(engine: EchoEngine, **options: Any) -> AsyncIterator[Server]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    app = build_app(engine, **options)
    task = asyncio.create_task(serve(app, host="127.0.0.1", port=0, stop=stop, listening=port.set_result))
    try:
        yield Server(app, engine, await port)
    finally:
        stop.set()
        await task


@pytest.fixture(scope="session")
def tiny_family() -> Iterator[Family]:
    """The tiny model, whole."""
    threads = torch.get_num_threads()
    yield load_model(load_config("tiny"), "cpu")
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def value() -> Callable[[Counter], float]:
    """`value(counter)`: what a counter of the server stands at."""
    return lambda counter: next(iter(counter.collect())).samples[0].value


@pytest.fixture
def engine() -> EchoEngine:
    return EchoEngine()


@pytest.fixture
def run_server(engine: EchoEngine) -> Callable[..., contextlib.AbstractAsyncContextManager[Server]]:
    """`async with run_server(token=…) as server`: options are those of `build_app`."""
    return partial(running, engine)


@pytest.fixture
async def server(engine: EchoEngine) -> AsyncIterator[Server]:
    async with running(engine) as server:
        yield server

"""A small server that speaks the protocol and plays a fake agent, and a Chromium with fake devices.

`browse` opens pages; `agent` is the server. A test of the real runtime overrides `page_url` alone.
"""

import asyncio
import contextlib
import functools
import io
import itertools
import math
import pathlib
import socket
import threading
import wave
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import pytest
import simplejpeg
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from protocol import messages as m
from protocol.errors import Close, CloseCode
from protocol.media import MediaKind, MediaUnit
from protocol.session import Event, Send, ServerProtocol, State
from thinker.server import static_files

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]
UNIT_S = 0.16
SIZE = 128
STAGES = {
    "encode": 9.0,
    "state": 14.0,
    "send": 1.2,
    "append": 2.4,
    "solve": 41.0,
    "return": 0.8,
    "decode": 12.0,
}
READY = m.Ready(
    session_id="s1",
    resume_token="r1",
    unit_ms=160,
    fps=25,
    frames_per_unit=4,
    sample_rate=16000,
    width=SIZE,
    height=SIZE,
    input_width=64,
    input_height=64,
    input_rate=16000,
    audio_codec="pcm16",
    video_codec="jpeg",
    model="pocket",
)


def face(mouth: float) -> bytes:
    """JPEG of a simple face; `mouth` from 0 (shut) to 1."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    picture = np.zeros((SIZE, SIZE, 3)) + np.array([178, 200, 205]) - 30 * y[..., None]
    picture[(x / 0.62) ** 2 + ((y - 0.1) / 0.75) ** 2 < 1] = (226, 180, 150)
    picture[((x / 0.68) ** 2 + ((y + 0.25) / 0.68) ** 2 < 1) & (y < -0.35 + 0.15 * x**2)] = (84, 58, 44)
    for side in (-0.24, 0.24):
        picture[((x - side) / 0.09) ** 2 + ((y + 0.05) / 0.06) ** 2 < 1] = (250, 250, 250)
        picture[((x - side) / 0.045) ** 2 + ((y + 0.05) / 0.05) ** 2 < 1] = (50, 70, 80)
    picture[(x / 0.2) ** 2 + ((y - 0.47) / (0.025 + 0.1 * mouth)) ** 2 < 1] = (140, 50, 54)
    jpeg: bytes = simplejpeg.encode_jpeg(picture.clip(0, 255).astype(np.uint8), quality=85)
    return jpeg


T = TypeVar("T")


class FakeAgent:
    """The fake agent: hums while it answers a text, else is silent. Tests look at what it received."""

    def __init__(self) -> None:
        self.faces = [face(level) for level in (0.0, 0.5, 1.0)]
        self.received: list[Event] = []
        self.over = threading.Event()
        self.queue_first = False
        self.frozen = False
        self.end_after: int | None = None
        self.end_with = (1011, "the model ended")
        self.origin = ""

    def of_type(self, kind: type[T]) -> list[T]:
        return [event for event in self.received if isinstance(event, kind)]

    async def session(self, socket_: WebSocket) -> None:
        await socket_.accept(subprotocol=m.SUBPROTOCOL)
        protocol = ServerProtocol()
        reader = asyncio.ensure_future(self._read(socket_, protocol))
        try:
            await self._play(socket_, protocol)
        except (WebSocketDisconnect, RuntimeError):
            pass  # the page left while something was being sent
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self.over.set()

    async def _read(self, socket_: WebSocket, protocol: ServerProtocol) -> None:
        while True:
            message = await socket_.receive()
            if message["type"] == "websocket.disconnect":
                protocol.close(CloseCode.NORMAL, "")
                return
            if self.frozen:
                continue
            for event in protocol.receive(message.get("text") or message["bytes"]):
                match event:
                    case Send(data=data):
                        await socket_.send_text(data)
                    case Close(code=code, reason=reason):
                        await socket_.close(code, reason)
                    case _:
                        self.received.append(event)

    async def _play(self, socket_: WebSocket, protocol: ServerProtocol) -> None:
        await self._queue_then_ready(socket_, protocol)
        start = asyncio.get_running_loop().time()
        for number in itertools.count():
            while self.frozen:  # noqa: ASYNC110 - set from the test's thread
                await asyncio.sleep(0.01)
            if number == self.end_after:
                await socket_.close(*self.end_with)
            if number == self.end_after or protocol.state is not State.READY:
                return
            speaking = await self._answer(socket_, protocol, number)
            protocol.offer(self._unit(number, protocol.epoch, speaking))
            while (data := protocol.next_media()) is not None:
                await socket_.send_bytes(data)
            await asyncio.sleep(max(0.0, start + (number + 1) * UNIT_S - asyncio.get_running_loop().time()))

    async def _queue_then_ready(self, socket_: WebSocket, protocol: ServerProtocol) -> None:
        while protocol.state is State.HELLO:  # noqa: ASYNC110 - the state machine has no events of its own
            await asyncio.sleep(0.01)
        if self.queue_first:
            await socket_.send_text(protocol.send(m.Queued(position=2, eta_s=40)))
        while self.queue_first:  # noqa: ASYNC110 - set from the test's thread
            await asyncio.sleep(0.01)
        await socket_.send_text(protocol.send(READY))
        self._answered = 0
        self._speaks_until = -1
        self._first_text = len(self.of_type(m.Text))
        self._interrupts = len(self.of_type(m.Interrupt))

    async def _answer(self, socket_: WebSocket, protocol: ServerProtocol, number: int) -> bool:
        """Send what goes with unit `number`; returns whether the agent speaks in it."""
        messages: list[m.ServerMessage] = []
        texts = self.of_type(m.Text)[self._first_text :]
        if len(texts) > self._answered:
            self._answered = len(texts)
            if not any(map(str.isalnum, texts[-1].text)):
                refusal = f"“{texts[-1].text}” will not be answered"
                await socket_.send_text(protocol.send(m.Warning(code="text-refused", message=refusal)))
                return False
            self._speaks_until = number + 8
            messages.append(m.Heard(request="say_it", unit=number))
            messages.append(m.AgentState(state="speaking"))
            words = ("You said", ": ", texts[-1].text)
            messages += [m.TextDelta(text=word, unit=number + part) for part, word in enumerate(words)]
        if len(self.of_type(m.Interrupt)) > self._interrupts:
            self._interrupts += 1
            self._speaks_until = number
            messages.append(m.Interrupted(epoch=protocol.epoch + 1, heard_pts=0))
        if number == self._speaks_until:
            messages.append(m.AgentState(state="listening"))
        if number % 6 == 0:
            stages = {**STAGES, "remember": 11.0}
            messages.append(m.Metrics(stages_ms=stages, model_side_ms=80.6, loop_ms=71.0, emitted=number))
        for message in messages:
            await socket_.send_text(protocol.send(message))
        return number < self._speaks_until

    def _unit(self, number: int, epoch: int, speaking: bool) -> MediaUnit:
        time = np.arange(2560) / 16000 + number * UNIT_S
        sound = (
            0.3 * speaking * np.sin(2 * math.pi * 220 * time) * (0.6 + 0.4 * np.sin(2 * math.pi * 3 * time))
        )
        mouths = [(number + index) % 3 if speaking else 0 for index in range(4)]
        return MediaUnit(
            kind=MediaKind.AGENT,
            epoch=epoch,
            unit=number,
            pts_us=number * 160_000,
            audio=(sound * 32767).astype("<i2").tobytes(),
            frames=tuple(self.faces[mouth] for mouth in mouths),
        )


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Run an app on a free port of 127.0.0.1 in a thread; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="websockets-sansio"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    """The fake agent, being served."""
    agent = FakeAgent()
    app = Starlette(
        routes=[
            *static_files.ROUTES,
            Route("/v1/models", lambda _: JSONResponse({"data": [{"id": "fake", "workload": "live"}]})),
            WebSocketRoute("/v1/session", agent.session),
        ]
    )
    with serving(app) as agent.origin:
        yield agent


@pytest.fixture
def page_url(agent: FakeAgent) -> str:
    """Address of the page under test."""
    return agent.origin


@pytest.fixture(scope="session")
def fake_media(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """A camera (y4m: a bar that wanders) and a microphone (wav: a tone) as files."""
    folder = tmp_path_factory.mktemp("devices")
    camera, microphone = folder / "camera.y4m", folder / "microphone.wav"
    width, height = 320, 240
    with camera.open("wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420jpeg\n".encode())
        for frame in range(25):
            luma = np.full((height, width), 70, np.uint8)
            luma[:, frame * 12 : frame * 12 + 40] = 220
            file.write(b"FRAME\n" + luma.tobytes() + bytes([110]) * (width * height // 4))
            file.write(bytes([150]) * (width * height // 4))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(48000)
        sound.writeframes(
            (9000 * np.sin(np.arange(96000) * 2 * math.pi * 440 / 48000)).astype("<i2").tobytes()
        )
    microphone.write_bytes(buffer.getvalue())
    return camera, microphone


Launch = Callable[..., Browser]
Browse = Callable[..., Page]


@pytest.fixture(scope="module")
def launch(fake_media: tuple[pathlib.Path, pathlib.Path]) -> Iterator[Launch]:
    """`launch(devices=, allowed=, flags=)` gives a browser, one for each set of arguments."""
    camera, microphone = fake_media
    fake = [
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-video-capture={camera}",
        f"--use-file-for-fake-audio-capture={microphone}",
    ]
    yes = ["--use-fake-ui-for-media-stream"]
    with sync_playwright() as playwright:

        @functools.cache
        def start(*, devices: bool, allowed: bool, flags: tuple[str, ...]) -> Browser:
            args = [*FLAGS, *(fake if devices else ()), *(yes if allowed else ()), *flags]
            return playwright.chromium.launch(executable_path=CHROMIUM, args=args)

        yield start


@pytest.fixture
def browse(launch: Launch) -> Iterator[Browse]:
    """`browse(url, devices=, allowed=, flags=)` opens a page; errors in its console fail the test."""
    complaints: list[str] = []
    pages: list[Page] = []

    def open_page(
        url: str, *, devices: bool = True, allowed: bool = True, flags: tuple[str, ...] = ()
    ) -> Page:
        browser = launch(devices=devices, allowed=allowed, flags=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.extend([line.text] if line.type == "error" else []))
        page.goto(url)
        return page

    yield open_page
    for page in pages:
        page.close()
    harmless = "The Cross-Origin-Opener-Policy header has been ignored"
    assert [words for words in complaints if not words.startswith(harmless)] == []

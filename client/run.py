"""One session of the client: open the user's part, connect, wait for a place, talk, close everything."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from client.devices import open_devices
from client.media import FileUser, MediaSource, SilentUser
from client.options import ClientOptions, ClientSummary
from client.player import Player
from client.recorder import check_target
from client.session import ClientSession, open_session, session_url
from client.session_loop import SessionLoop
from protocol import messages as m

log = logging.getLogger(__name__)


async def run_client(
    options: ClientOptions,
    *,
    stop: asyncio.Event | None = None,
    on_heard: Callable[[str], None] | None = None,
    on_understood: Callable[[str], None] | None = None,
) -> ClientSummary:
    """Hold one session and return what came of it.

    Args:
        options: see there.
        stop: set it to end the session in order: bye is said and the recording completed.
        on_heard: called with the agent's text, piece by piece, as it is heard.
        on_understood: called with the name of each request of the user's that the agent understood.

    Raises:
        ClientError: whatever ended it too early; a recording is completed all the same.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    if options.record is not None:
        check_target(options.record)
    began = loop.time()
    source = await asyncio.to_thread(_open_source, options)
    # the worker is done before the source is closed under it
    with contextlib.closing(source), ThreadPoolExecutor(1, "user") as worker:
        hello = m.Hello(camera=source.has_camera, microphone=source.has_microphone, token=options.token)
        async with open_session(session_url(options.url), hello) as session:
            ready = await _ready_or_stopped(session, stop)
            if ready is None:
                return ClientSummary(ended="stopped")
            log.info("session %s with %s", ready.session_id, ready.model)
            player = Player(
                ready,
                speaker=options.speaker,
                window=options.window,
                on_heard=on_heard or (lambda _text: None),
            )
            with contextlib.closing(player):
                session_loop = SessionLoop(
                    options, session, ready, source=source, player=player, worker=worker, began=began,
                    on_understood=on_understood or (lambda _request: None),
                )  # fmt: skip
                return await session_loop.run(stop)


def _open_source(options: ClientOptions) -> MediaSource:
    if options.input is not None:
        return FileUser(options.input)
    if options.microphone is None and options.camera is None:
        return SilentUser()
    return open_devices(microphone=options.microphone, camera=options.camera)


async def _ready_or_stopped(session: ClientSession, stop: asyncio.Event) -> m.Ready | None:
    waiting = asyncio.ensure_future(session.wait_ready(_tell_queued))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([waiting, stopped], return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        stopped.cancel()
        waiting.cancel()
        await asyncio.gather(waiting, stopped, return_exceptions=True)


def _tell_queued(queued: m.Queued) -> None:
    log.info("waiting for a place: %s", place_in_queue(queued))


def place_in_queue(queued: m.Queued) -> str:
    """For people: "2nd in line, about 40 s"."""
    n, eta_s = queued.position, queued.eta_s
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    place = "next" if n == 1 else f"{n}{ending} in line"
    if eta_s is None:
        return place
    if eta_s < 1:
        return f"{place}, any moment now"
    return f"{place}, about " + (f"{math.ceil(eta_s)} s" if eta_s < 90 else f"{round(eta_s / 60)} min")

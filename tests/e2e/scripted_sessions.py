"""Sessions whose users follow a script, in one process or through a pair: what exactness tests compare."""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from shared.clock import Clock, ManualClock, UnpacedClock
from shared.config import RuntimeConfig
from shared.links.base import LinkEnd
from shared.links.choose import LINK_NAMES, missing
from shared.models.cache import KVCache
from shared.models.family import Family, UserUnit
from shared.models.single import Reply, reply_to
from shared.processes.model import handshake_params
from shared.processes.rendezvous import RendezvousListener, accept_peers
from shared.processes.roles import THINKER
from thinker.engine.pipeline import Pipeline, PipelineOptions
from thinker.engine.running_session import RunningSession
from thinker.engine.timings import Timings
from thinker.report import UnitCounts
from thinker.units import AgentUnit

SEED = 11
LINKS = [name for name in LINK_NAMES if name != "auto"]
REQUEST = "What is your name?"
REQUEST_UNITS = 12
INTERRUPTED_IN = 22
TEXTS = {
    16: ("Good morning, my friend.", "How are you?"),
    INTERRUPTED_IN + 2: ("It is 10:30.",),
}

_numbers = itertools.count(1)


def unpaced() -> Clock:
    """As fast as it goes."""
    return UnpacedClock()


def on_the_clock() -> Clock:
    """With ticks that come as soon as they are waited for."""
    return ManualClock(time.monotonic())


class ScriptedUser:
    """What users of a model do: they ask aloud, make noise, move, type, and interrupt the agent once.

    Who asks is user 0, in the voice of the agent itself, which it understands; the others each do
    something of their own.
    """

    def __init__(self, family: Family) -> None:
        self._media = family.media
        users = (
            UserUnit(pcm=self._silence(), frames=self._frames(0, 0), texts=(REQUEST,) if unit == 0 else ())
            for unit in range(REQUEST_UNITS)
        )
        self._request = [reply.media.pcm.astype(np.float32) / 32768 for reply in reply_to(family, 3, users)]

    def unit(self, unit: int, user: int = 0) -> UserUnit:
        """Unit `unit` of a user's session."""
        rng = np.random.default_rng((user, unit))
        pcm = self._silence() + rng.standard_normal(self._media.input_unit_samples, np.float32) * 0.003
        if user == 0 and 0 <= unit - 1 < REQUEST_UNITS:
            pcm += self._request[unit - 1]
        if user > 0 and unit == 6:
            pcm *= 100
        texts = TEXTS.get(unit, ()) if user == 0 else (f"I am number {user}.",) if unit == 1 else ()
        return UserUnit(
            pcm=pcm, frames=self._frames(user, unit), texts=texts, interrupted=unit == INTERRUPTED_IN,
            epoch=int(unit >= INTERRUPTED_IN),
        )  # fmt: skip

    def units(self, user: int = 0) -> Iterator[UserUnit]:
        """All units of a user, without end."""
        return (self.unit(unit, user) for unit in itertools.count())

    def alone(self, family: Family, units: int, user: int = 0) -> list[Reply]:
        """What a user gets in one process, with no one else there."""
        return list(reply_to(family, SEED, itertools.islice(self.units(user), units)))

    def _silence(self) -> npt.NDArray[np.float32]:
        return np.zeros(self._media.input_unit_samples, np.float32)

    def _frames(self, user: int, unit: int) -> npt.NDArray[np.uint8]:
        media, rng = self._media, np.random.default_rng((user, unit, 1))
        height, width = media.input_height, media.input_width
        frames = rng.integers(0, 40, (media.frames_per_unit, height, width, 3), dtype=np.uint8)
        column = (7 * unit + 11 * user) % (width - 16)
        frames[:, height // 4 : height // 2, column : column + 16] = (220, 40, 30)
        return frames


class _Source:
    """Hands the engine one unit after the other."""

    def __init__(self, units: Iterator[UserUnit]) -> None:
        self._units = units

    def lacking(self) -> bool:
        return False

    def take(self) -> UserUnit:
        return next(self._units)


@dataclass
class ScriptedSession:
    """One session through the pair, and what it got."""

    user: int
    running: RunningSession
    units: list[AgentUnit]
    latents: list[Tensor] = field(default_factory=list)


class ScriptedPair:
    """The Thinker's end of a pair: sessions join and leave."""

    def __init__(
        self, family: Family, link: LinkEnd, user: ScriptedUser, *, clock: Clock, **options: Any
    ) -> None:
        self.sessions: list[ScriptedSession] = []
        self._user = user
        options = {"checked": True, **options}
        slots = PipelineOptions(**options).slots
        self.pipeline = Pipeline(
            family=family, link=link, memory=family.allocate(slots), clock=clock, wakeup=link.receiver,
            options=PipelineOptions(**options), timings=Timings(clock, one_host=True), counts=UnitCounts(),
            on_latents=self._keep,
        )  # fmt: skip

    def _keep(self, running: RunningSession, _: int, latents: Tensor) -> None:
        (session,) = [each for each in self.sessions if each.running is running]
        session.latents.append(latents)

    def join(self, user: int = 0) -> ScriptedSession:
        """Begin a session of one of the users."""
        units: list[AgentUnit] = []
        running = RunningSession(
            number=next(_numbers), seed=SEED, source=_Source(self._user.units(user)), on_unit=units.append,
            clock=self.pipeline.unit_clock(),
        )  # fmt: skip
        self.sessions.append(ScriptedSession(user, running, units))
        self.pipeline.open(running)
        return self.sessions[-1]

    def leave(self, session: ScriptedSession) -> None:
        """End it, whatever is under way."""
        self.pipeline.close(session.running)

    def run_until(self, session: ScriptedSession, units: int) -> None:
        """Go on until a session has got so many units."""
        while len(session.units) < units:
            self.pipeline.step()

    def finish(self) -> None:
        """Wait for what is under way."""
        while not self.pipeline.idle:
            self.pipeline.wakeup.wait(None)
            self.pipeline.collect()


def hold_session(pair: ScriptedPair, units: int) -> ScriptedSession:
    """One session of user 0, from its beginning to its end."""
    session = pair.join()
    pair.run_until(session, units)
    pair.finish()
    pair.leave(session)
    return session


def assert_same(session: ScriptedSession, expected: list[Reply], units: int) -> None:
    """A session got what one process gives, byte for byte, for so many units at least."""
    assert len(session.units) >= units
    for number, (unit, latents, one) in enumerate(
        zip(session.units, session.latents, expected, strict=False)
    ):
        where = f"unit {number} of user {session.user}"
        assert unit.unit == number, where
        assert unit.decision == one.decision, where
        assert latents.numpy().tobytes() == one.latents.numpy().tobytes(), f"latents of {where}"
        assert unit.media.pcm.tobytes() == one.media.pcm.tobytes(), f"sound of {where}"
        assert unit.media.frames.tobytes() == one.media.frames.tobytes(), f"pictures of {where}"


def written(cache: KVCache) -> tuple[Tensor, Tensor]:
    """A copy of all but the scratch places, which are the Performer's own; and which places are hidden."""
    kv, scratch = cache.kv_L2SNKD, cache.layout.scratch
    kept = torch.cat([kv[:, :, :, : scratch.start], kv[:, :, :, scratch.stop :]], dim=3)
    return kept, cache.hidden_SN.clone()


def why_not(link: str, device: str = "cpu") -> str | None:
    """Why a link can't be tested here, in words."""
    reason = missing(link, device)
    return f"{link}: {reason}" if reason else None


def write_config(folder: Path, name: str, **choices: int | str) -> Path:
    """A shipped config with other choices."""
    text = resources.files("configs").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    for key, value in choices.items():
        text = re.sub(rf"(?m)^{key} = .*$", "", text)
        text = f"{key} = {value if isinstance(value, int) else repr(value)}\n{text}"
    path = folder / f"{name}-{len(list(folder.iterdir()))}.toml"
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def linked_performer(
    groups: Callable[[], AbstractContextManager[Any]],
    secret: str,
    family: Family,
    config: RuntimeConfig,
    file: str,
    link: str,
    devices: tuple[str, str] = ("cpu", "cpu"),
) -> Iterator[LinkEnd]:
    """The end of a link to a Performer in a process of its own, which must end well."""
    own, others = devices
    with groups() as group, RendezvousListener("127.0.0.1", 0, secret=secret, role=THINKER) as listener:
        performer = group.start(
            "performer", "--config", file, "--link", link, "--rendezvous", f"127.0.0.1:{listener.port}",
            "--device", others, "--debug",
        )  # fmt: skip
        params = handshake_params(family, config, secret=secret, link=link, device=own)
        with accept_peers(listener, params, timeout_s=120)["performer"] as end:
            assert end.kind == link
            yield end
        assert performer.wait() == 1, performer.output
        assert performer.output.splitlines()[-1] == "performer: the thinker has ended"

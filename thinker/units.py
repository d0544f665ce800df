"""What passes between the server and the engine: units, the media that a model wants, two protocols.

The server knows no model, the engine no socket. The server fills an `Inbox`; the engine takes one `UserUnit`
from it per tick and hands over one `AgentUnit` per unit through the callback that `open_session` got.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shared.media import Media
from shared.models.family import AgentMedia, StepDecision, UserUnit
from thinker.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaSpec(Media):
    """The media of the model that is loaded, and its name."""

    model: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AgentUnit:
    """One unit of the agent: what the model decided and what it looks and sounds like.

    `epoch` is that of the `UserUnit` that it answers: the server drops what is older than the last
    interruption.
    """

    unit: int
    epoch: int
    decision: StepDecision
    media: AgentMedia


class UserSource(Protocol):
    """Where the engine takes the user's units from: the inbox of a session, or a recording of one."""

    def lacking(self) -> bool:
        """Whether the unit that is due is likely to be there in a moment, and isn't yet."""

    def take(self) -> UserUnit:
        """The unit that is due. Called on the model thread once a tick; never waits."""


class SessionHandle(Protocol):
    """A slot held by one session; what else it holds is the engine's own business."""

    @property
    def number(self) -> int:
        """The session's number, the same as in KV slices and in logs."""


class Engine(Protocol):
    """The side that owns the model thread.

    All of it is called on the event loop, so none of it may wait: a method posts a request to the model
    thread and returns. `ready` turns true when a session can be opened; `fault` says in one line why none
    ever will again.
    """

    @property
    def spec(self) -> MediaSpec:
        """The media of the loaded model."""

    @property
    def ready(self) -> bool:
        """Weights are loaded and the Performer is there."""

    @property
    def fault(self) -> str | None:
        """One line for the user, once the engine is beyond help."""

    def open_session(
        self, *, inbox: UserSource, on_unit: Callable[[AgentUnit], None], on_end: Callable[[str], None]
    ) -> SessionHandle | None:
        """Take a slot and start its units, or return None where none is free.

        Both callbacks are called on the model thread and return at once. `on_end(reason)` is for an end that
        the engine decides: called once, and nothing follows it. A call that crosses with `close_session` does
        no harm.
        """

    def close_session(self, handle: SessionHandle) -> None:
        """Free the slot; closing one that has ended already is harmless."""

    def wait_s(self, position: int) -> float | None:
        """About how long the `position`th of those that wait will wait, 1 is next; None when unknown."""

    def report(self) -> Report:
        """What was measured since the start."""

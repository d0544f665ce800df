"""What the model decided in one unit, as messages to the client: a new fact of `StepDecision` goes here."""

from collections.abc import Iterator

from protocol import messages as m
from shared.models.family import StepDecision

SHOWN_OF_LINE = 60  # characters of a line of the user that are enough to know it by


def agent_messages(unit: int, decision: StepDecision, *, audible: bool) -> Iterator[m.ServerMessage]:
    """The messages in the order in which they are sent, before the unit's media.

    Words of a unit that won't be heard and seen (`audible`) are not said either.
    """
    for line in decision.refused:
        yield text_refused(line, "nothing in it can be spoken, or too much waits to be spoken")
    for line in decision.interrupted:
        yield text_refused(line, "the agent was interrupted before it came to it")
    if audible and decision.heard:
        yield m.Heard(request=decision.heard, unit=unit)
    if audible and decision.text:
        yield m.TextDelta(text=decision.text, unit=unit)


def text_refused(line: str, why: str) -> m.Warning:
    """The user must know of every line that gets no answer."""
    shown = line if len(line) <= SHOWN_OF_LINE else f"{line[:SHOWN_OF_LINE]}…"
    return m.Warning(code="text-refused", message=f"“{shown}” will not be answered: {why}")

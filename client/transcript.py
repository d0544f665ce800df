"""What the agent said, and how much of it was heard: text counts when its unit is played."""

import collections


class Transcript:
    """Collects `text.delta` messages. `said` is all that came, `heard` what the user has heard of it."""

    def __init__(self, *, unit_us: int) -> None:
        self._unit_us = unit_us
        self._waiting: collections.deque[tuple[int, str]] = collections.deque()
        self._said: list[str] = []
        self._heard: list[str] = []

    @property
    def said(self) -> str:
        """All text that came."""
        return "".join(self._said)

    @property
    def heard(self) -> str:
        """The text of the units that were played."""
        return "".join(self._heard)

    def add(self, text: str, unit: int) -> None:
        """The agent says `text` in `unit`."""
        self._said.append(text)
        self._waiting.append((unit, text))

    def advance(self, heard_us: int) -> str:
        """The sound up to this media time was heard; returns the text that is new with it."""
        new = []
        while self._waiting and self._waiting[0][0] * self._unit_us < heard_us:
            new.append(self._waiting.popleft()[1])
        self._heard += new
        return "".join(new)

    def cut(self) -> None:
        """The agent was interrupted: what waits will never be heard."""
        self._waiting.clear()

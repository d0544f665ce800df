"""How long sessions stay, and from that how long those may have to wait who want to be next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

REMEMBERED = 16


class WaitEstimator:
    """Sessions that stay now, and how long the last ones did.

    Args:
        now: the clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_at: dict[int, float] = {}
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)

    def begin(self, session: int) -> None:
        """A session takes a slot."""
        self._began_at[session] = self._now()

    def end(self, session: int) -> None:
        """It leaves it."""
        self._lasted.append(self._now() - self._began_at.pop(session))

    def wait_s(self, position: int) -> float | None:
        """How long the `position`th of those that wait, 1 is next, may have to: if sessions stay as lately.

        None before one has ended, and while none is there that could end.
        """
        if not self._lasted or not self._began_at:
            return None
        now, lasts = self._now(), sum(self._lasted) / len(self._lasted)
        left = sorted(self._left_s(now - began_at) for began_at in self._began_at.values())
        rounds, place = divmod(position - 1, len(left))
        return left[place] + rounds * lasts

    def _left_s(self, age: float) -> float:
        """What is left of a session: the mean of what was left of those that became so old.

        One that is older than all of them may stay as long again, as far as can be known.
        """
        longer = [each - age for each in self._lasted if each > age]
        return sum(longer) / len(longer) if longer else sum(self._lasted) / len(self._lasted)

"""Time, injected: the clocks a loop can run on, and the deadlines of units on any of them."""

import time
from typing import Protocol


class Wakeup(Protocol):
    """Anything that a wait may end early for: a link's receiver, an event, several of them."""

    def wait(self, timeout_s: float | None) -> bool:
        """Block for at most `timeout_s` seconds; True when there is something to look at."""


class Clock(Protocol):
    """Monotonic seconds from an arbitrary origin, and the only place where a loop waits for time."""

    paced: bool
    """Whether moments come in their time; where they don't, nothing can be late and nobody is waited for."""

    def now(self) -> float:
        """Seconds; differences are real durations on every clock but the manual one."""

    def wait_until(self, t: float, wakeup: Wakeup | None = None) -> bool:
        """Wait for the moment `t` or for `wakeup`; True when `t` has come, False when woken before."""


class MonotonicClock:
    """Real time: CLOCK_MONOTONIC, which all processes of one host share."""

    paced = True

    def now(self) -> float:
        return time.monotonic()

    def wait_until(self, t: float, wakeup: Wakeup | None = None) -> bool:
        while (left_s := t - self.now()) > 0:
            if wakeup is None:
                time.sleep(left_s)
            elif wakeup.wait(left_s):
                return self.now() >= t
        return True


class UnpacedClock(MonotonicClock):
    """Real time, but every moment has already come: drives a loop as fast as it can go."""

    paced = False

    def wait_until(self, t: float, wakeup: Wakeup | None = None) -> bool:  # noqa: ARG002
        return True


class ManualClock:
    """Time that moves only when told to, or when someone waits for it. For tests on one thread."""

    paced = True

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def wait_until(self, t: float, wakeup: Wakeup | None = None) -> bool:
        if self._now < t and wakeup is not None and wakeup.wait(0.0):
            return False
        self._now = max(self._now, t)
        return True


class UnitClock:
    """Deadlines of units: tick k comes at start + k · unit, always counted from the start.

    Each deadline is one multiplication away from the anchor, so that hours of units add up no error; a loop
    that fell behind stays behind, and can see by how much, until it calls `skip`.
    """

    def __init__(self, unit_s: float, clock: Clock) -> None:
        self.unit_s = unit_s
        self.clock, self.paced = clock, clock.paced
        self._start = clock.now()
        self._skipped = 0

    def start(self, at: float | None = None) -> None:
        """Make the moment `at`, or this one, tick 0."""
        self._start = self.clock.now() if at is None else at
        self._skipped = 0

    def deadline(self, k: int) -> float:
        """The moment of tick `k`, in the clock's seconds."""
        return self._start + (k + self._skipped) * self.unit_s

    def tick(self, k: int) -> float:
        """The moment at which tick `k` came: its deadline, or this moment where time isn't paced."""
        return self.deadline(k) if self.paced else self.clock.now()

    def due(self, k: int) -> bool:
        return not self.paced or self.clock.now() >= self.deadline(k)

    def behind_s(self, k: int) -> float:
        """How many seconds ago tick `k` was due; 0 when it is still to come, or time isn't paced."""
        return max(0.0, self.clock.now() - self.deadline(k)) if self.paced else 0.0

    def skip(self, num_units: int) -> None:
        """Move every deadline `num_units` later: the loop gives up time that it can't catch up."""
        self._skipped += num_units

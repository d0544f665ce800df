"""Stage timings in fixed memory: how long each stage took, as percentiles over hours."""

import math
import threading
from array import array
from collections import defaultdict

_FLOOR_S = 1e-6
_CEILING_S = 1e3
_GROWTH = 1.02
_LOG_GROWTH = math.log(_GROWTH)
_NUM_BINS = math.ceil(math.log(_CEILING_S / _FLOOR_S) / _LOG_GROWTH) + 1


class Histogram:
    """Counts over log-spaced bins from 1 µs to 1,000 s; a percentile is within 1 % of a recorded value.

    About 8 kB whatever the number of values. Values under 1 µs are counted as 0, over 1,000 s as 1,000 s.
    """

    def __init__(self) -> None:
        self.count = 0
        self.max = 0.0
        self.total = 0.0
        self._bins = array("Q", bytes(8 * (_NUM_BINS + 1)))

    def record(self, seconds: float) -> None:
        """Add one value, in seconds, not negative."""
        self.count += 1
        self.max = max(self.max, seconds)
        self.total += seconds
        self._bins[_bin_of(seconds)] += 1

    def percentile(self, percent: float) -> float:
        """The smallest value that `percent` of all values do not exceed, in seconds; 0 when there is none."""
        rank = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for index, num_values in enumerate(self._bins):
            seen += num_values
            if seen >= rank:
                middle = _FLOOR_S * _GROWTH ** (index - 0.5) if index else 0.0
                return min(middle, self.max)
        return 0.0


class Stages:
    """One histogram per stage name. Threads may record and read at the same time."""

    def __init__(self) -> None:
        self._histograms: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._lock = threading.Lock()

    def record(self, name: str, seconds: float) -> None:
        with self._lock:
            self._histograms[name].record(seconds)

    def count(self, name: str) -> int:
        """How many durations of `name` were recorded."""
        with self._lock:
            return self._histograms[name].count

    def percentile_ms(self, name: str, percent: float) -> float:
        """A percentile of stage `name` in milliseconds; 0 when nothing was recorded."""
        with self._lock:
            return 1e3 * self._histograms[name].percentile(percent)

    def mean_ms(self, name: str) -> float:
        """The mean of stage `name` in milliseconds, exact; 0 when nothing was recorded."""
        with self._lock:
            histogram = self._histograms[name]
            return 1e3 * histogram.total / max(histogram.count, 1)


def _bin_of(seconds: float) -> int:
    if seconds < _FLOOR_S:
        return 0
    return min(1 + int(math.log(seconds / _FLOOR_S) / _LOG_GROWTH), _NUM_BINS)

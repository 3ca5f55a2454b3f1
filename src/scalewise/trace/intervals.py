"""Sets of intervals that merge as they grow, and the time that they cover.

    kernels = Intervals(base=first_start)
    kernels.add(start, duration)       # microseconds, in any order
    spans = kernels.spans()            # merged and sorted
    spans.length(low, high)            # nanoseconds of [low, high] that are covered

Inputs are floats of microseconds, as in traces; inside they are whole nanoseconds since `base`, so
sums are exact and touching intervals merge. Memory is that of the merged intervals.
"""

from __future__ import annotations

import math
from array import array

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

FOLD = 1 << 16
"""Intervals that are buffered before they are merged."""


class Spans:
    """Merged intervals in order, none touching the next.

    Attributes:
        starts: Nanoseconds.
        ends: Nanoseconds.
    """

    def __init__(self, starts: Times, ends: Times) -> None:
        self.starts = starts
        self.ends = ends
        self._sums: Times | None = None

    @property
    def _before(self) -> Times:
        """Return nanoseconds covered before each interval, and by all; computed once."""
        if self._sums is None:
            self._sums = np.zeros(self.starts.size + 1, np.int64)
            np.cumsum(self.ends - self.starts, out=self._sums[1:])
        return self._sums

    def covered(self, times: Times) -> Times:
        """Return nanoseconds covered before each of some times."""
        place = np.searchsorted(self.starts, times, side="right")
        if not self.starts.size:
            return np.zeros_like(times)
        # The latest interval may still be open.
        beyond = np.maximum(self.ends[np.maximum(place - 1, 0)] - times, 0)
        return np.asarray(self._before[place] - np.where(place > 0, beyond, 0))

    def length(self, low: int | None = None, high: int | None = None) -> int:
        """Return nanoseconds covered, in total or between two times."""
        if low is None or high is None:
            return int(self._before[-1])
        first, last = self.covered(np.array([low, high], np.int64))
        return int(last - first)

    def shared(self, other: Spans) -> int:
        """Return nanoseconds that both cover."""
        return int((self.covered(other.ends) - self.covered(other.starts)).sum())

    def clipped(self, low: int, high: int) -> Spans:
        """Return the intervals between two times, clipped."""
        starts, ends = np.clip(self.starts, low, high), np.clip(self.ends, low, high)
        kept = ends > starts
        return Spans(starts[kept], ends[kept])


def merged(*parts: tuple[Times, Times]) -> Spans:
    """Merge intervals in any order.

    Args:
        parts: (starts, ends) of each set.
    """
    starts = np.concatenate([part[0] for part in parts] or [np.empty(0, np.int64)])
    ends = np.concatenate([part[1] for part in parts] or [np.empty(0, np.int64)])
    if not starts.size:
        return Spans(starts, ends)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        del order
    ends = np.maximum.accumulate(ends)
    new = np.concatenate(([True], starts[1:] > ends[:-1], [True]))
    return Spans(starts[new[:-1]], ends[new[1:]])


def union(*sets: Spans) -> Spans:
    """Return the union of some sets."""
    some = [each for each in sets if each.starts.size]
    return some[0] if len(some) == 1 else merged(*((each.starts, each.ends) for each in some))


class Intervals:
    """Intervals that arrive one by one and are merged in batches.

    Attributes:
        base: Microseconds at which the nanoseconds start.
    """

    def __init__(self, base: float) -> None:
        self.base = base
        self._waiting = array("d")
        self._limit = 2 * FOLD
        self._merged = merged()
        self._start, self._end = math.inf, -math.inf

    def add(self, start: float, duration: float) -> None:
        """Add one interval, in microseconds."""
        start -= self.base
        end = start + duration
        if self._start <= start and end <= self._end:
            return  # nested in the previous one, as operators that others call
        self._start, self._end = start, end
        self._waiting.extend((start, end))
        if len(self._waiting) >= self._limit:
            self._fold()

    def _fold(self) -> None:
        times = nanoseconds(self._waiting)
        self._waiting = array("d")
        # Merge the new ones first: mostly they follow the others, which need no sorting.
        self._merged = union(self._merged, merged((times[0::2], times[1::2])))
        # A batch proportional to the merged intervals keeps the cost of merging linear.
        self._limit = 2 * max(FOLD, self._merged.starts.size // 4)

    def spans(self) -> Spans:
        """Return all intervals, merged."""
        if self._waiting:
            self._fold()
        return self._merged


def nanoseconds(microseconds: array[float]) -> Times:
    """Round to whole nanoseconds, the resolution of profilers."""
    times = np.frombuffer(microseconds, dtype=np.float64) if microseconds else np.empty(0)
    return np.rint(times * 1e3).astype(np.int64)

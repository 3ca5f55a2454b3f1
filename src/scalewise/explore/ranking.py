"""Best few strategies, and Pareto front, of a stream of strategies.

    best = TopK(10)
    best.add(values, rows)                    # objectives, smaller is better, and strategies
    best.strategies()                         # best first

A space is evaluated in pieces; only these objects stay in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scalewise.numeric import Array, Index, Mask
from scalewise.strategies import FIELDS, Strategies
from scalewise.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Strategies with their objectives, one row of `values` per objective."""

    values: Array
    codes: Array
    """Fields of the strategies as codes, one row per field in the order of `FIELDS`."""

    @staticmethod
    @lru_cache
    def none(objectives: int = 1) -> Rows:
        """Return an empty selection."""
        return Rows(values=np.zeros((objectives, 0)), codes=np.zeros((len(FIELDS), 0)))

    @classmethod
    def of(cls, values: Array, strategies: Strategies, places: Index) -> Rows:
        """Return the rows at some indices of a piece."""
        if not len(places):
            return cls.none(len(values))
        return cls(values=values[:, places], codes=strategies.codes(places))

    def take(self, places: Index) -> Rows:
        """Return a subset."""
        return Rows(values=self.values[:, places], codes=self.codes[:, places])

    def with_(self, other: Rows) -> Rows:
        """Return both, these first."""
        if not other.values.shape[1]:
            return self
        return Rows(
            values=np.concatenate([self.values, other.values], axis=1),
            codes=np.concatenate([self.codes, other.codes], axis=1),
        )

    def strategies(self) -> list[Strategy]:
        """Return a list of strategies."""
        return list(Strategies.of_codes(self.codes)) if self.values.shape[1] else []


def smallest(values: Array, maximum: int, below: float = np.inf) -> Index:
    """Places of the `most` smallest values under a bound, in order; the first of equals first."""
    places = np.flatnonzero(values < below)
    if len(places) > maximum:
        found = values[places]
        # Only values up to the last one kept need sorting.
        last = np.partition(found, maximum - 1)[maximum - 1]
        places = places[found <= last]
    order = np.argsort(values[places], kind="stable")[:maximum]
    return np.asarray(places[order])


class TopK:
    """The best rows so far by one objective, never more than `most`."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.rows = Rows.none()

    @property
    def bound(self) -> float:
        """Value that a row must be below to enter."""
        values = self.rows.values[0]
        return float(values[-1]) if len(values) == self.maximum else np.inf

    def add(self, rows: Rows) -> None:
        """Add rows; among equal values the first stay."""
        if rows.values.shape[1]:
            joined = self.rows.with_(rows)
            self.rows = joined.take(np.argsort(joined.values[0], kind="stable")[: self.maximum])


class ParetoFront:
    """Rows that no other row dominates."""

    def __init__(self, objectives: int) -> None:
        self.rows = Rows.none(objectives)

    def add(self, rows: Rows) -> None:
        """Add rows."""
        if rows.values.shape[1]:
            joined = self.rows.with_(rows)
            self.rows = joined.take(nondominated(joined.values))


def candidates(values: Array, feasible: Index, front: Array) -> Index:
    """Places among `feasible` that lie on the front of a piece, given a front so far.

    Args:
        values: One row per objective, smaller is better.
        feasible: The places that count.
        front: Values of the front so far.
    """
    places, found = feasible, values[:, feasible]
    if len(values) == 2:
        keep = ~_beaten_in_two(found, front)
        places, found = places[keep], found[:, keep]
    else:
        # Each point of the front removes what it dominates, which leaves fewer for the next.
        for point in front.T:
            keep = ~np.all(point[:, None] <= found, axis=0)
            places, found = places[keep], found[:, keep]
        # The best compromises of the piece itself likewise, before the rest is compared in pairs.
        while found.shape[1] > 64:
            best = found[:, np.argmin(np.sum(found / found.min(axis=1, keepdims=True), axis=0))]
            keep = ~np.all(best[:, None] <= found, axis=0) | np.all(best[:, None] == found, axis=0)
            if keep.all():
                break
            places, found = places[keep], found[:, keep]
    return np.asarray(places[nondominated(found)])


def _beaten_in_two(values: Array, front: Array) -> Mask:
    """Return for each column whether a front of two objectives has a point at least as good."""
    if not front.shape[1]:
        return np.zeros(values.shape[1], dtype=bool)
    order = np.argsort(front[0], kind="stable")
    minimum = np.minimum.accumulate(front[1][order])
    # The last point that is as good in the first objective, and the best second one up to it.
    before = np.searchsorted(front[0][order], values[0], side="right") - 1
    return np.asarray((before >= 0) & (minimum[np.maximum(before, 0)] <= values[1]))


def nondominated(values: Array) -> Index:
    """Return columns of `values` (one row per objective, smaller is better) that none dominates."""
    order = np.lexsort(values[::-1])
    if len(values) == 2:
        second = values[1][order]
        before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
        return np.asarray(np.sort(order[second < before]))
    kept: list[int] = []
    front = np.zeros((len(values), 0))
    for column in order:
        point = values[:, column][:, None]
        if front.size and bool(np.any(np.all(front <= point, axis=0))):
            continue
        kept.append(int(column))
        front = np.concatenate([front, point], axis=1)
    return np.array(sorted(kept), dtype=int)

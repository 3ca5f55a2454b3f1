"""What of a stream of strategies is worth keeping: the best few, and the front.

    kept = Kept(10)
    kept.add(values, rows)                    # numbers to make small, and their strategies
    kept.strategies()                         # best first

A space is walked through in pieces; what stays in memory is what these classes hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Array, Index, Mask
from scalewise.strategies import FIELDS, Strategies
from scalewise.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some strategies and what is to be made small, one row of `values` per objective."""

    values: Array
    columns: dict[str, Array]

    @classmethod
    def none(cls, objectives: int = 1) -> Rows:
        """No strategies at all."""
        return cls(values=np.zeros((objectives, 0)), columns={f: np.zeros(0) for f in FIELDS})

    @classmethod
    def of(cls, values: Array, strategies: Strategies, places: Index) -> Rows:
        """The rows at some places of a piece."""
        if not len(places):
            return cls.none(len(values))
        return cls(values=values[:, places], columns=strategies.rows(places))

    def take(self, places: Index) -> Rows:
        """Some of them."""
        columns = {name: column[places] for name, column in self.columns.items()}
        return Rows(values=self.values[:, places], columns=columns)

    def with_(self, other: Rows) -> Rows:
        """Both, these first."""
        return Rows(
            values=np.concatenate([self.values, other.values], axis=1),
            columns={
                name: np.concatenate([column, other.columns[name]])
                for name, column in self.columns.items()
            },
        )

    def strategies(self) -> list[Strategy]:
        """As strategies again."""
        return list(Strategies(self.columns)) if self.values.shape[1] else []


def smallest(values: Array, most: int, below: float = np.inf) -> Index:
    """Places of the `most` smallest values under a bound, in order; the first of equals first."""
    places = np.flatnonzero(values < below)
    if len(places) > most:
        found = values[places]
        # Only what is not above the last one kept needs sorting.
        last = np.partition(found, most - 1)[most - 1]
        places = places[found <= last]
    order = np.argsort(values[places], kind="stable")[:most]
    return np.asarray(places[order])


class Kept:
    """The best rows so far by one objective, never more than `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = Rows.none()

    @property
    def bound(self) -> float:
        """What a row must be below to be of interest."""
        values = self.rows.values[0]
        return float(values[-1]) if len(values) == self.most else np.inf

    def add(self, rows: Rows) -> None:
        """Offer rows; of equal values those stay that came first."""
        if rows.values.shape[1]:
            joined = self.rows.with_(rows)
            self.rows = joined.take(np.argsort(joined.values[0], kind="stable")[: self.most])


class Front:
    """Rows that no other row beats in every objective."""

    def __init__(self, objectives: int) -> None:
        self.rows = Rows.none(objectives)

    def add(self, rows: Rows) -> None:
        """Offer rows."""
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
        # Each point of the front takes away what it beats, so that little is left for the next.
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
    """Whether a front of two objectives has a point at least as good, for each column."""
    if not front.shape[1]:
        return np.zeros(values.shape[1], dtype=bool)
    order = np.argsort(front[0], kind="stable")
    least = np.minimum.accumulate(front[1][order])
    # The last point that is as good in the first objective, and the best second one up to it.
    before = np.searchsorted(front[0][order], values[0], side="right") - 1
    return np.asarray((before >= 0) & (least[np.maximum(before, 0)] <= values[1]))


def nondominated(values: Array) -> Index:
    """Columns of `values` (one row per objective, smaller is better) that none dominates."""
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

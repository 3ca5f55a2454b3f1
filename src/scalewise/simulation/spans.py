"""Sums and overlaps of sorted intervals.

overlap([(0, 2), (3, 4)], [(1, 3.5)])      # 1.5
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]


def union(spans: Iterable[Span]) -> list[Span]:
    """Merge intervals that touch or overlap; sorted."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def total(spans: Sequence[Span]) -> float:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in spans)


def overlap(a: Sequence[Span], b: Sequence[Span]) -> float:
    """Return the seconds in both of two lists, each sorted and without internal overlaps."""
    found, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if high > low:
            found += high - low
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


def outside(a: Iterable[Span], b: Sequence[Span]) -> float:
    """Return the seconds of `a`, merged, that lie outside of `b`."""
    merged = union(a)
    return total(merged) - overlap(merged, b)

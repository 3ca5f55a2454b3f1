"""How many GPUs a run needs: the smallest size that fits, and that meets a deadline.

    needed = smallest(curve, days=30.0, fit=0.9)
    needed.point.accelerators, needed.point.days

Sizes are those of a scaling curve; a finer range of sizes gives a finer answer.
"""

from __future__ import annotations

from typing import NamedTuple

from scalewise.explore.points import Curve, Point


class Needed(NamedTuple):
    """The smallest size of one curve that is enough."""

    curve: Curve
    """The curve."""
    point: Point | None
    """Its first point that is enough; None if no size is."""
    before: int | None
    """Largest smaller size, which is not enough; None if the first one is enough."""
    last: Point | None
    """The fastest point that fits; None if none does."""


def smallest(curve: Curve, *, days: float | None = None, fit: float = 0.0) -> Needed:
    """Return the first size that fits with a chance, within some days.

    Args:
        curve: Points over sizes.
        days: Deadline of the token budget; None to ask for memory only.
        fit: Chance to fit into memory that is demanded, 0 to 1.
    """
    last: Point | None = None
    for point in curve.feasible:
        if point.fit is not None and point.fit < fit:
            continue
        if days is None or (point.days is not None and point.days <= days):
            sizes = [each.accelerators for each in curve.points]
            sizes += [each.accelerators for each in curve.missing]
            smaller = [size for size in sizes if size < point.accelerators]
            return Needed(curve, point, max(smaller, default=None), point)
        if last is None or point.tokens_per_second > last.tokens_per_second:
            last = point
    return Needed(curve, None, None, last)

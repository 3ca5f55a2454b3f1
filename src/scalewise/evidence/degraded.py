"""Degraded runs: rows of a sweep far slower than their neighbors, for no stated reason.

    slow = degraded(np.log(measured / predicted), sweeps)

Large sweeps contain runs that are 2 to 40 times slower than rows beside them: a sick node, a job
that shares the network, a timeout. No column says so. They are recognized by their residuals,
counted and shown apart, and neither constants, intervals nor headlines use them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from scalewise.numeric import Array, Mask

FEWEST = 30
"""Rows of a sweep from which it has a healthy center: below, one odd layout shifts it."""

DEVIATIONS = 5.0
"""Robust standard deviations below the center from which a row is degraded: chance leaves one
healthy row in 3 million there."""

SLOWEST_HEALTHY = float(np.log(1.5))
"""Residual (log) that errors of the model reach on their own: no row of the FSDP and Megatron
tables is slower than predicted by more than a factor of 1.37."""


def degraded(residuals: Array, sweeps: Sequence[Hashable]) -> Mask:
    """Return which rows are degraded.

    Healthy residuals scatter around the shortest half of their sweep. Rows above that center are
    healthy, because nothing makes a run faster by accident: their median distance is the scale.
    A row further below than `DEVIATIONS` scales, and `SLOWEST_HEALTHY`, is degraded.

    Args:
        residuals: Log of measured over predicted, by row.
        sweeps: Sweep of every row: rows of one source, model and accelerator.

    >>> healthy = 0.1 * np.sin(np.arange(40.0))
    >>> int(degraded(np.append(healthy, [-0.3, -1.0, -3.0]), ["a"] * 43).sum())
    2
    """
    found = np.zeros(len(residuals), dtype=bool)
    rows: dict[Hashable, list[int]] = {}
    for row, sweep in enumerate(sweeps):
        if np.isfinite(residuals[row]):
            rows.setdefault(sweep, []).append(row)
    for places in rows.values():
        if len(places) < FEWEST:
            continue
        here = residuals[places]
        center = shortest_half(here)
        above = here[here >= center] - center
        scale = 1.4826 * float(np.median(above))
        slow = center - max(DEVIATIONS * scale, SLOWEST_HEALTHY)
        found[np.array(places)[here < slow]] = True
    return found


def shortest_half(values: Array) -> float:
    """Return the median of the shortest interval that holds half of the values.

    Unlike the median it stays where most values agree, though nearly half of them are far off on
    one side (Rousseeuw and Leroy, 1987: the shorth).

    >>> shortest_half(np.array([0.0, 0.1, 0.2, 9.0, 11.0]))
    0.1
    """
    ordered = np.sort(values)
    half = len(ordered) // 2 + 1
    width = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    start = int(np.argmin(width))
    return float(np.median(ordered[start : start + half]))

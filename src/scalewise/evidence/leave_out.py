"""Leave-one-source-out validation: every source predicted by a fit without it.

    out = leave_one_source_out(table)
    out.predicted, out.low, out.high           # every row predicted by a fit without its source

Each source is left out, the constants are fitted again on the rest, and the source is predicted.
A stack that vanishes with its only source is predicted as unknown software would be: by the generic
constants of its kind. Intervals come from the residuals of other sources in the same situation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.chip import UNCALIBRATED
from scalewise.evidence.calibrate import Calibrator

if TYPE_CHECKING:
    from collections.abc import Callable

    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array, Mask

COVERAGE = (0.1, 0.9)
"""Quantiles of measured over predicted that bound an 80 % interval."""

FEWEST = 8
"""Rows from which a quantile is taken; below, rows of similar kind are used."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Predictions of every row by a fit that has not seen its source."""

    predicted: Array
    low: Array
    high: Array
    known: Mask
    """Whether the row's stack was still known without its source."""


def leave_one_source_out(
    table: RunTable,
    *,
    start: Calibrator | None = None,
    progress: Callable[[str], None] | None = None,
) -> LeftOut:
    """Refit without each source and predict it.

    Args:
        table: Measured runs.
        start: A fit on all rows, whose values the refits start from, to save time.
        progress: Called with the name of each source before its refit.
    """
    sources = np.array([run.source for run in table.runs])
    owners = np.array([stack.constants_from or stack.name for stack in table.stacks])
    chips = np.array([plan.cluster.accelerator.architecture for plan in table.plans])
    predicted = np.full(len(table), np.nan)
    known = np.zeros(len(table), dtype=bool)
    chip_known = np.zeros(len(table), dtype=bool)
    for source in sorted(set(sources.tolist())):
        if progress is not None:
            progress(source)
        here = sources == source
        fit = Calibrator().fit(table.select(~here), start=start.values_ if start else None)
        predicted[here] = fit.predict(table.select(here))
        known[here] = np.isin(owners[here], owners[~here])
        chip_known[here] = np.isin(chips[here], chips[~here])
    ratio = table.measured / predicted
    factor = intervals_of_others(ratio, sources, owners, known)
    widened = np.where(chip_known, 1.0, UNCALIBRATED.interval[1])
    return LeftOut(
        predicted=predicted,
        low=predicted / factor / widened,
        high=predicted * factor * widened,
        known=known,
    )


def intervals_of_others(ratio: Array, sources: Array, owners: Array, known: Mask) -> Array:
    """Interval factor of each row (x/: it) from residuals of other sources in its situation.

    A row whose stack is known asks other sources of that stack; one whose stack vanished asks
    the other vanished ones. Their bias is no guide to this one's, so the factor is symmetric.
    """
    factor = np.ones(len(ratio))
    for source in sorted(set(sources.tolist())):
        here = sources == source
        for owner in sorted(set(owners[here].tolist())):
            rows = here & (owners == owner)
            alike = (known == known[rows][0]) & ~here & np.isfinite(ratio)
            same = alike & (owners == owner)
            pool = same if int(same.sum()) >= FEWEST else alike
            if int(pool.sum()) < FEWEST:
                pool = ~here & np.isfinite(ratio)
            distance = np.abs(np.log(ratio[pool]))
            level = COVERAGE[1] - COVERAGE[0]
            (reach,) = balanced_quantiles(distance, sources[pool], (level,))
            factor[rows] = np.exp(reach)
    return factor


def balanced_quantiles(
    values: Array, groups: Array, levels: tuple[float, ...] = COVERAGE
) -> tuple[float, ...]:
    """Quantiles in which every group has the same say, however many rows it has."""
    weight = np.zeros(len(values))
    for group in set(groups.tolist()):
        weight[groups == group] = 1.0 / float(np.sum(groups == group))
    order = np.argsort(values)
    cumulative = np.cumsum(weight[order]) - 0.5 * weight[order]
    share = cumulative / float(weight.sum())
    return tuple(np.interp(levels, share, values[order]).tolist())

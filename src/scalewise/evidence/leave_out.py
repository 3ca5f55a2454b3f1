"""Leave-one-source-out validation: every source predicted by a fit without it.

    out = leave_one_source_out(table)
    out.predicted, out.low, out.high           # every row predicted by a fit without its source

Each source is left out, the constants are fitted again on the rest, and the source is predicted.
A stack that vanishes with its only source is predicted as unknown software would be. Intervals are
those of `scalewise.ranges`, by what is still known of the software.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.ranges_fit import ResidualRow, residual_rows
from scalewise.ranges import FEWEST, level_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array, Mask


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Predictions of every row by a fit that has not seen its source."""

    predicted: Array
    low: Array
    high: Array
    known: Mask
    """Whether the row's stack was still known without its source."""
    rows: list[ResidualRow]
    """The rows with a measurement: residuals, and what their intervals depend on."""


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
    predicted = np.full(len(table), np.nan)
    known = np.zeros(len(table), dtype=bool)
    for source in sorted(set(sources.tolist())):
        if progress is not None:
            progress(source)
        here = sources == source
        fit = Calibrator().fit(table.select(~here), start=start.values_ if start else None)
        predicted[here] = fit.predict(table.select(here))
        left = Counter(owners[~here].tolist())
        known[here] = [left[owner] >= FEWEST for owner in owners[here].tolist()]
    rows = residual_rows(table, predicted, known)
    factors = {row.id: level_range(row.basis) for row in rows}
    low, high = np.array([factors.get(run.id, (np.nan, np.nan)) for run in table.runs]).T
    return LeftOut(
        predicted=predicted, low=predicted * low, high=predicted * high, known=known, rows=rows
    )

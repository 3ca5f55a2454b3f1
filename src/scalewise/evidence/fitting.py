"""The whole calibration in one call: constants, memory, effects of intervals, catalog files.

written = calibrate(read_runs(), folder)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.collectives import CollectivesFit, read_collectives
from scalewise.evidence.degraded import degraded
from scalewise.evidence.files import write_catalog, write_ranges
from scalewise.evidence.leave_out import leave_one_source_out
from scalewise.evidence.left_out_table import write_left_out
from scalewise.evidence.memory_fit import MemoryFit
from scalewise.evidence.ranges_fit import fit_effects
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run


def measured_table(runs: Sequence[Run]) -> RunTable:
    """The rows a calibration may learn from: dense, well graded, measured."""
    table = RunTable.of([r for r in runs if r.dense and r.quality in JUDGED_QUALITIES])
    return table.select(np.isfinite(table.measured))


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What a calibration did."""

    fit: Calibrator
    memory: MemoryFit
    table: RunTable
    files: list[Path]


def calibrate(
    runs: Sequence[Run],
    folder: Path,
    *,
    intervals: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibrated:
    """Fit everything and write catalog files.

    Args:
        runs: Measured runs.
        folder: Where the files go.
        intervals: Also fit the effects of intervals, by refitting without each source (minutes).
        progress: Called with a sentence before each long step.
    """
    fit, table = calibrated_table(runs, progress=progress)
    memory = MemoryFit().fit(measured_table(runs))
    links = CollectivesFit().fit(read_collectives()[0]).values_
    files = write_catalog(fit, memory, table, folder, links)
    if intervals:
        out = leave_one_source_out(
            table, start=fit, progress=lambda name: progress(f"refitting without {name} ...")
        )
        files.append(write_left_out(out.rows, folder))
        progress("fitting the effects behind intervals ...")
        files.append(write_ranges(fit_effects(out.rows), folder))
    return Calibrated(fit=fit, memory=memory, table=table, files=files)


def calibrated_table(
    runs: Sequence[Run], *, progress: Callable[[str], None] = lambda _: None
) -> tuple[Calibrator, RunTable]:
    """Fit constants without degraded rows; return the fit and the rows it used."""
    every = measured_table(runs)
    progress(f"fitting constants to {len(every)} runs ...")
    first = Calibrator().fit(every)
    table = healthy(every, first)
    progress(f"fitting constants without {len(every) - len(table)} degraded runs ...")
    return Calibrator().fit(table, start=first.values_), table


def healthy(table: RunTable, fit: Calibrator) -> RunTable:
    """Return the table without degraded rows, by the residuals of a robust fit to all of them."""
    names = [
        (run.source, plan.model.name, plan.cluster.accelerator.name)
        for run, plan in zip(table.runs, table.plans, strict=True)
    ]
    return table.select(~degraded(np.log(table.measured / fit.predict(table)), names))

"""The whole calibration in one call: constants, memory, intervals, catalog files.

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
from scalewise.evidence.files import write_catalog
from scalewise.evidence.leave_out import (
    COVERAGE,
    LeftOut,
    balanced_quantiles,
    leave_one_source_out,
)
from scalewise.evidence.memory_fit import MemoryFit
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run
    from scalewise.numeric import Array

FOLDS = 4
"""Parts into which the models of a stack's only source are dealt to judge it."""


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
    intervals: dict[str, tuple[float, float]]
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
        intervals: Also learn the intervals, by refitting without each source (minutes).
        progress: Called with a sentence before each long step.
    """
    table = measured_table(runs)
    progress(f"fitting constants to {len(table)} runs ...")
    fit = Calibrator().fit(table)
    memory = MemoryFit().fit(table)
    learned: dict[str, tuple[float, float]] = {}
    if intervals:
        learned = learn_intervals(table, fit, progress)
    links = CollectivesFit().fit(read_collectives()[0]).values_
    files = write_catalog(fit, memory, table, learned, folder, links)
    return Calibrated(fit=fit, memory=memory, table=table, intervals=learned, files=files)


def learn_intervals(
    table: RunTable, fit: Calibrator, progress: Callable[[str], None]
) -> dict[str, tuple[float, float]]:
    """80 % intervals by stack, from residuals of rows that the fit had not seen.

    A stack with several sources is judged on whole sources; one with a single source on models
    left out of it; the generic stacks on stacks that vanished with their source.
    """
    out = leave_one_source_out(
        table, start=fit, progress=lambda name: progress(f"refitting without {name} ...")
    )
    inner = _leave_models_out(table, fit, out, progress)
    names = np.array([s.constants_from or s.name for s in table.stacks])
    sources = np.array([run.source for run in table.runs])
    ratio = table.measured / np.where(out.known, out.predicted, inner)
    found: dict[str, tuple[float, float]] = {}
    for stack in table.stacks:
        rows = names == (stack.constants_from or stack.name)
        low, high = balanced_quantiles(ratio[rows], sources[rows])
        found[stack.name] = _rounded((low, high))
    vanished = ~out.known
    if vanished.any():
        distance = np.abs(np.log(table.measured / out.predicted))[vanished]
        (reach,) = balanced_quantiles(distance, sources[vanished], (COVERAGE[1] - COVERAGE[0],))
        generic = _rounded((float(np.exp(-reach)), float(np.exp(reach))))
        found["generic-eager"] = found["generic-compiled"] = generic
    return found


def _leave_models_out(
    table: RunTable, fit: Calibrator, out: LeftOut, progress: Callable[[str], None]
) -> Array:
    """Predict rows of single-source stacks by fits that have not seen their model."""
    inner = out.predicted.copy()
    alone = ~out.known
    models = np.array([plan.model.name for plan in table.plans])
    stacks = np.array([s.constants_from or s.name for s in table.stacks])
    fold = np.full(len(table), -1)
    for stack in sorted(set(stacks[alone].tolist())):
        mine = sorted(set(models[alone & (stacks == stack)].tolist()))
        for place, model in enumerate(mine):
            fold[alone & (stacks == stack) & (models == model)] = place % FOLDS
    for part in range(FOLDS):
        here = fold == part
        if not here.any():
            continue
        progress(f"refitting without a part of the models ({part + 1} of {FOLDS}) ...")
        other = Calibrator().fit(table.select(~here), start=fit.values_)
        inner[here] = other.predict(table.select(here))
    return inner


def _rounded(pair: tuple[float, float]) -> tuple[float, float]:
    """Two digits are more than an interval knows; it always holds the prediction itself."""
    return min(round(pair[0], 3), 0.99), max(round(pair[1], 3), 1.01)

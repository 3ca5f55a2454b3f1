"""The whole calibration in one call: constants, memory, effects of intervals, catalog files.

written = calibrate(read_runs(), folder)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.collectives import CollectivesFit, read_collectives
from scalewise.evidence.degraded import degraded
from scalewise.evidence.expert_fit import ExpertFit, ExpertRows, fit_experts, leave_out_experts
from scalewise.evidence.files import write_catalog, write_experts, write_ranges
from scalewise.evidence.leave_out import leave_one_source_out
from scalewise.evidence.left_out_table import LeftOutRow, read_left_out, write_left_out
from scalewise.evidence.memory_fit import MemoryFit
from scalewise.evidence.ranges_fit import ResidualRow, fit_effects, fit_expert_effects
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES
from scalewise.ranges import Effects, load_effects

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
    experts: ExpertFit | None
    """Constants of experts; None without runs of any."""
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
    rows: list[ResidualRow] = []
    effects = None
    if intervals:
        rows = leave_one_source_out(
            table, start=fit, progress=lambda name: progress(f"refitting without {name} ...")
        ).rows
        progress("fitting the effects behind intervals ...")
        known = load_effects()
        effects = msgspec.structs.replace(
            fit_effects(rows), experts=known.experts, recipe=known.recipe
        )
    experts = None
    if len(expert_runs(runs)) >= FEWEST:
        experts, unseen, effects = _experts(runs, fit, effects, progress)
        rows = rows + unseen
        files.append(write_experts(experts, folder))
    if effects is not None:
        files += [write_left_out(rows, folder), write_ranges(effects, folder)]
    return Calibrated(fit=fit, memory=memory, table=table, experts=experts, files=files)


FEWEST = 5
"""Runs of experts from which their constants are fitted."""


def expert_runs(runs: Sequence[Run]) -> list[Run]:
    """Complete runs of experts on GPUs, which their constants are fitted on."""
    return [
        run
        for run in runs
        if run.number("experts")
        and run.quality in JUDGED_QUALITIES
        and run.text("tokens_per_second_per_accelerator")
        and not (run.text("accelerator") or "").startswith("tpu")
    ]


def calibrate_experts(
    runs: Sequence[Run], folder: Path, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[ExpertFit, list[Path]]:
    """Fit the constants of experts and their intervals; all others stay those of the catalog.

    Args:
        runs: Measured runs.
        folder: Where the files go.
        progress: Called with a sentence before each long step.

    Raises:
        InputError: If there are fewer than 5 runs of experts on GPUs.
    """
    if len(expert_runs(runs)) < FEWEST:
        raise InputError(
            f"{len(expert_runs(runs))} complete runs of experts are too few to calibrate on",
            hint=f"give at least {FEWEST} rows of GPUs with experts and "
            "tokens_per_second_per_accelerator",
        )
    fit, rows, effects = _experts(runs, None, load_effects(), progress)
    assert effects is not None
    here = {run.id for run in runs if run.number("experts")}
    kept: dict[str, LeftOutRow] = {
        name: row for name, row in read_left_out().items() if name not in here
    }
    return fit, [
        write_experts(fit, folder),
        write_left_out(rows, folder, kept=kept),
        write_ranges(effects, folder),
    ]


def _experts(
    runs: Sequence[Run],
    dense: Calibrator | None,
    effects: Effects | None,
    progress: Callable[[str], None],
) -> tuple[ExpertFit, list[ResidualRow], Effects | None]:
    """Fit experts after dense layers; with effects also their left-out predictions and effects."""
    rows = ExpertRows.of(runs, dense)
    progress(f"fitting constants of experts to {int(rows.gpu.sum())} runs ...")
    fit = fit_experts(rows)
    if effects is None:
        return fit, [], None
    out = leave_out_experts(
        rows,
        rows.usual(dense),
        progress=lambda name: progress(f"refitting experts without {name} ..."),
    )
    return fit, out.stated, fit_expert_effects(effects, out.stated, out.usual)


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

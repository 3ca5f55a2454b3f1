"""Memory constants of stacks, fitted to runs that report their peak memory.

    fit = MemoryFit().fit(table)
    fit.values_[("nanotron", "activation_factor")], fit.interval_["nanotron"]

Separate from the fit of time: other rows, other constants, no shared parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.errors import require
from scalewise.step.memory import peak_memory

if TYPE_CHECKING:
    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array

# (name, prior, spread of its logarithm, low, high). Gradients: 2 (bf16) to 6 (fp32 + bf16) bytes;
# activations over the least: 1 (fused) to 2 (eager); logits: 4 to 16 bytes; the rest small.
PARAMETERS = (
    ("gradient_memory", 4.5, 0.3, 2.0, 6.0),
    ("activation_factor", 1.3, 0.3, 0.7, 3.0),
    ("logit_memory", 8.0, 0.4, 2.0, 24.0),
    ("workspace_bytes", 0.8e9, 0.7, 1e8, 6e9),
)

SCALE = 0.08
"""Residual at which rows start to count less."""

FEWEST_ROWS = 6
"""Rows that a fit needs; priors hold what few rows do not determine."""

MANY_ROWS = 100
"""Rows from which the spread of their own residuals is the interval."""

FEW = (0.85, 1.15)
"""Narrowest interval of a stack with a handful of peaks: an assumption."""

UNMEASURED = (0.82, 1.26)
"""Interval of stacks without measured peaks, before it is widened to hold what ran: quantiles of
measured over predicted where the peaks of five stacks are predicted with the constants of each of
the others, every pair with equal weight (1,080 runs of nanotron, PaddleNLP, Megatron-LM and PyTorch
eager and compiled)."""


class MemoryFit:
    """Memory constants by stack; learned values end in an underscore."""

    def __init__(self) -> None:
        self.values_: dict[tuple[str, str], float] = {}
        self.interval_: dict[str, tuple[float, float]] = {}
        self.rows_: dict[str, int] = {}

    def fit(self, table: RunTable) -> MemoryFit:
        """Learn from the rows that state a peak; stacks with too few keep their constants.

        Rows that state their recompute but no peak say less: they ran, so they needed no more than
        the device has.
        """
        optimize: Any = require("scipy.optimize", "calibrate")
        measured = np.array([run.memory_bytes or np.nan for run in table.runs])
        names = np.array([stack.name for stack in table.stacks])
        for name in sorted(set(names.tolist())):
            mask = (names == name) & np.isfinite(measured)
            if int(mask.sum()) < FEWEST_ROWS:
                continue
            part, target = table.select(mask), np.log(measured[mask])
            stated = np.array([run.states_recompute for run in table.runs])
            ran = (names == name) & stated & ~np.isfinite(measured)
            others = table.select(ran) if ran.any() else None
            prior = np.log([p[1] for p in PARAMETERS])
            spread = np.array([p[2] for p in PARAMETERS])
            bounds = (np.log([p[3] for p in PARAMETERS]), np.log([p[4] for p in PARAMETERS]))

            def residuals(
                vector: Array,
                part: RunTable = part,
                target: Array = target,
                others: RunTable | None = others,
                prior: Array = prior,
                spread: Array = spread,
            ) -> Array:
                error = np.log(predict_memory(part, vector)) - target
                if others is not None:
                    room = predict_memory(others, vector) / others.case.rates.memory_bytes
                    error = np.concatenate([error, np.maximum(np.log(room), 0.0)])
                error = error / SCALE
                robust = np.sign(error) * np.sqrt(np.log1p(error * error))
                return np.concatenate([robust, (vector - prior) / spread])

            result = optimize.least_squares(residuals, prior, bounds=bounds, x_scale="jac")
            for (parameter, *_), value in zip(PARAMETERS, np.exp(result.x).tolist(), strict=True):
                self.values_[name, parameter] = value
            ratio = np.exp(target - np.log(predict_memory(part, result.x)))
            low, high = np.quantile(ratio, [0.1, 0.9]).tolist()
            whole = part if others is None else table.select(mask | ran)
            room = whole.case.rates.memory_bytes / predict_memory(whole, result.x)
            if len(target) < MANY_ROWS:
                # A handful of runs in their own sample say little about the next one.
                low, high = min(low, FEW[0]), max(high, FEW[1])
            self.interval_[name] = (min(low, float(room.min())), high)
            self.rows_[name] = int(mask.sum())
        self._widen_where_unmeasured(table, names)
        return self

    def _widen_where_unmeasured(self, table: RunTable, names: Array) -> None:
        """Stacks without measured peaks: every run that ran must lie inside the interval."""
        room = table.case.rates.memory_bytes / np.asarray(peak_memory(table.case).total)
        for name in sorted(set(names.tolist()) - set(self.interval_)):
            minimum = float(room[names == name].min())
            self.interval_[name] = (min(UNMEASURED[0], minimum), UNMEASURED[1])


def predict_memory(table: RunTable, vector: Array) -> Array:
    """Peak bytes of every row with these constants (logarithms, in the order of PARAMETERS)."""
    count = len(table)
    values = np.exp(vector)
    columns = {p[0]: np.full(count, v) for p, v in zip(PARAMETERS, values, strict=True)}
    columns["logit_memory"] *= table.case.habits.logit_memory > 0.0
    # Peaks are what the allocator handed out, so nothing is lost to fragmentation in them.
    case = table.case.changed(**columns, fragmentation=np.zeros(count))
    return np.asarray(peak_memory(case).total)

"""Robust least squares with priors, shared by all fits to microbenchmarks.

    learned = learn(error, {("chip", "hopper", "link_efficiency"): parameter}, weight)
    learned.values, learned.spread, learned.identified

Every constant is positive and spans decades, so the fit works on logarithms: priors are
log-normal, spreads are factors. The loss is Cauchy, because published sweeps contain outliers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalewise.errors import require
from scalewise.evidence.parameters import Parameter
from scalewise.numeric import Array
from scalewise.reading import read_csv

Key = tuple[str, str, str]
"""(scope, owner, parameter), for example ("fabric", "efa", "hop_seconds")."""

Limits = tuple[float, float]
"""Size below which rows are small, and above which they are large."""

Row = TypeVar("Row", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a fit found."""

    values: dict[Key, float]
    """Constants by key."""
    spread: dict[Key, float]
    """Factor of one standard deviation, prior included."""
    identified: dict[Key, bool]
    """Whether the rows said more than the prior: at least half of its spread is gone."""
    undetermined: list[Key]
    """Constants at a hard limit: something that is not modeled pushes them."""


def learn(
    error: Callable[[dict[Key, float]], Array],
    parameters: Mapping[Key, Parameter],
    weight: Array,
    scale: float,
) -> Learned:
    """Fit constants with log-normal priors under a Cauchy loss.

    Args:
        error: Log of predicted over measured by row, for given constants.
        parameters: What to learn, with priors and limits.
        weight: Weight of every row.
        scale: Residual at which rows start to count less.
    """
    optimize: Any = require("scipy.optimize", "calibrate")
    prior = np.log([p.prior for p in parameters.values()])
    wide = np.array([p.spread for p in parameters.values()])
    low = np.log([p.low for p in parameters.values()])
    high = np.log([p.high for p in parameters.values()])

    def named(vector: Array) -> dict[Key, float]:
        return dict(zip(parameters, np.exp(vector).tolist(), strict=True))

    def residuals(vector: Array, width: float) -> Array:
        off = error(named(vector)) / width
        robust = np.sign(off) * np.sqrt(np.log1p(off * off)) * weight
        return np.concatenate([robust, (vector - prior) / wide])

    # Wide first: a robust loss that starts narrow takes whole regimes for outliers.
    point = prior
    for width in (30.0 * scale, 8.0 * scale, 2.5 * scale, scale):
        result = optimize.least_squares(
            residuals, point, args=(width,), bounds=(low, high), x_scale="jac", max_nfev=60
        )
        point = np.clip(result.x, low + 1e-6, high - 1e-6)
    stuck = (result.x - low < 1e-3) | (high - result.x < 1e-3)
    deviation = np.sqrt(np.diag(np.linalg.pinv(result.jac.T @ result.jac)))
    return Learned(
        values=named(result.x),
        spread=named(deviation),
        identified=dict(zip(parameters, (deviation < 0.5 * wide).tolist(), strict=True)),
        undetermined=[key for key, flag in zip(parameters, stuck, strict=True) if flag],
    )


class RobustFit:
    """Base of fits on microbenchmarks; learned values end in an underscore.

    Args:
        scale: Residual (log of predicted over measured) at which rows start to count less.

    Attributes:
        values_, spread_, identified_: Constants, the factor of one standard deviation, and
            whether the rows said more than the prior, by key.
        on_bounds_: Constants at a hard limit: something that is not modeled pushes them.
        residuals_: Log of predicted over measured for the rows that were used.
        before_, after_: Errors by group over all given rows, before and after learning.
    """

    def __init__(self, *, scale: float) -> None:
        self.scale = scale
        self.values_: dict[Key, float] = {}
        self.spread_: dict[Key, float] = {}
        self.identified_: dict[Key, bool] = {}
        self.on_bounds_: list[Key] = []
        self.residuals_: Array = np.zeros(0)
        self.before_: dict[str, GroupError] = {}
        self.after_: dict[str, GroupError] = {}

    def _learn(
        self,
        error: Callable[[dict[Key, float]], Array],
        parameters: Mapping[Key, Parameter],
        weight: Array,
    ) -> None:
        """Run `learn` and keep what it found."""
        learned = learn(error, parameters, weight, self.scale)
        self.values_, self.spread_ = learned.values, learned.spread
        self.identified_, self.on_bounds_ = learned.identified, learned.undetermined
        self.residuals_ = error(learned.values)

    def _report(
        self, before: Array, after: Array, groups: Sequence[str], size: Array, limits: Limits
    ) -> None:
        """Summarize the errors of all given rows, before and after."""
        self.before_ = group_errors(before, groups, size, limits)
        self.after_ = group_errors(after, groups, size, limits)


def shared_weights(labels: Sequence[object]) -> Array:
    """Weights by which the rows of one sweep count as the square root of their number."""
    count = Counter(labels)
    return np.array([count[label] ** -0.25 for label in labels])


class GroupError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the predictions of a group are off: medians of |log(predicted / measured)|."""

    rows: int
    """How many."""
    median: float
    """Over all of them."""
    small: float | None
    """Over those below the small size; None if there are none."""
    large: float | None
    """Over those above the large size; None if there are none."""


def group_errors(
    off: Array, groups: Sequence[str], size: Array, limits: Limits
) -> dict[str, GroupError]:
    """Summarize errors by group, and those of all rows under "all".

    Args:
        off: Log of predicted over measured by row.
        groups: Heading of every row.
        size: What makes a row small or large.
        limits: Size below which it is small, and above which it is large.
    """
    names = np.array(groups)

    def middle(mask: NDArray[np.bool_]) -> float | None:
        return float(np.median(np.abs(off[mask]))) if mask.any() else None

    result = {}
    for name in ["all", *sorted(set(groups))] if groups else []:
        mask = np.ones(len(names), dtype=bool) if name == "all" else names == name
        result[name] = GroupError(
            rows=int(mask.sum()),
            median=float(np.median(np.abs(off[mask]))),
            small=middle(mask & (size < limits[0])),
            large=middle(mask & (size > limits[1])),
        )
    return result


def read_table(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file, empty cells left out.

    Raises:
        InputError: If it cannot be read.
    """
    table = read_csv(path, hint="give a file with the columns of the shipped one")
    return [{key: cell for key, cell in row.items() if key and cell} for _, row in table.rows]


def sort_rows(
    path: Path, row_of: Callable[[dict[str, str]], Row | str]
) -> tuple[list[Row], dict[str, int]]:
    """Read a table into rows, and count the reasons why others cannot be used.

    Args:
        path: A CSV file.
        row_of: Makes a row of cells, or says why it cannot.

    Raises:
        InputError: If the file cannot be read.
    """
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    for cells in read_table(path):
        try:
            result = row_of(cells)
        except ValueError:
            result = "a number cannot be read"
        if isinstance(result, str):
            skipped[result] += 1
        else:
            rows.append(result)
    return rows, dict(skipped)

"""Inversion: the value of a parameter that meets the measurements, and its range.

invert(state, "tcp", runs=1).value          # bytes/s per node
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.diagnosis.next_measurement import State
from scalewise.diagnosis.posterior import log_likelihood, quantiles

FINE = 401
"""Points between the ends of a grid."""


@dataclass(frozen=True, kw_only=True)
class Inverted:
    """A value, its range, and how well it fits."""

    value: float
    low: float
    high: float
    variant: float
    misfit: float
    """Largest |log(measured / predicted)|."""
    mended: float
    """Tokens/s per GPU of the first run without the cause."""


def invert(state: State, key: str, runs: int) -> Inverted:
    """Return the value of most likelihood of a cause, and its 80% interval.

    The value is what the measurements alone say, interpolated between points; the interval knows
    the prior too.

    Args:
        state: What is known.
        key: The cause.
        runs: Measured runs.
    """
    table = state.table
    points = table.points(key)
    weights = state.weights[points]
    total = weights.sum()
    weights = weights / total if total > 0.0 else np.full(len(points), 1.0 / len(points))
    kinds = table.variant[points]
    variant = max(set(kinds.tolist()), key=lambda kind: float(weights[kinds == kind].sum()))
    same = kinds == variant
    points, weights = points[same], weights[same] / weights[same].sum()
    values, rates = table.value[points], table.log_rate[:runs, points]
    noise = state.noise_of(range(runs))[:, points[0]][:, None]
    if len(values) > 3:
        order = np.argsort(values)
        fine = np.geomspace(values.min(), values.max(), FINE)
        ends = np.log(values[order])
        rates = np.array([np.interp(np.log(fine), ends, row[order]) for row in rates])
        finite = np.where(np.isfinite(state.logs[points]), state.logs[points], -700.0)
        prior = np.interp(
            np.log(fine), ends, (finite - table.log_prior[points].clip(-700.0))[order]
        )
        low, high = (float(np.exp(q)) for q in quantiles(np.log(values), weights, (0.1, 0.9)))
    else:
        fine, prior = values, state.logs[points].clip(-700.0)
        low = high = 0.0
    residuals = state.observed[:, None] - rates
    logs = log_likelihood(residuals, state.level[:runs], noise, state.groups[:runs]) + prior
    best = int(np.argmax(logs))
    value = float(fine[best])
    low, high = (min(low, value), max(high, value)) if high else (value, value)
    level = _level(state, residuals[:, best], noise[:, 0])
    return Inverted(
        value=value, low=low, high=high, variant=variant,
        misfit=float(np.abs(residuals[:, best]).max()),
        mended=float(np.exp(table.log_rate[0, 0] + level)),
    )  # fmt: skip


def _level(state: State, residuals: np.ndarray, noise: np.ndarray) -> float:
    """Mean of the level of the first run's software, given the residuals."""
    rows = [row for row in range(len(residuals)) if state.groups[row] == state.groups[0]]
    weight = 1.0 / noise[rows] ** 2
    spread = state.level[0] ** 2
    return float(spread * (weight * residuals[rows]).sum() / (1.0 + spread * weight.sum()))

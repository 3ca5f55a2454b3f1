"""Bayes' rule over causes in logarithms, with an error that all runs of one user share.

    logs = log_likelihood(residuals, level=0.15, noise=noise, groups=(0, 0))
    weights = normalized(log_prior + logs)

Measured over predicted has two errors: a level, which runs of the same software share (the team,
its chips, its compiler), and noise of each run of its own. Their covariance is diagonal plus rank
one, so that the formula of Sherman and Morrison (1950) gives its inverse and determinant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalewise.numeric import Array

LOG_2PI = float(np.log(2.0 * np.pi))


def shared_level(residuals: Array, level: float, noise: Array) -> Array:
    """Return the log density of residuals that share a level.

        r ~ N(0, L^2 1 1^T + diag(s^2)),  w = 1 / s^2
        r^T C^-1 r = sum(w r^2) - L^2 sum(w r)^2 / (1 + L^2 sum(w))
        log det C  = sum(log s^2) + log(1 + L^2 sum(w))

    Args:
        residuals: Log of measured over predicted, one row per run.
        level: Standard deviation of the level (log).
        noise: Standard deviation of each run (log); broadcasts with the residuals.

    >>> shared_level(np.zeros((1, 1)), 0.3, np.full((1, 1), 0.4)).round(4).item()
    -0.2258
    """
    weight = np.broadcast_to(1.0 / noise**2, residuals.shape)
    total, once = weight.sum(axis=0), (weight * residuals).sum(axis=0)
    more = 1.0 + level**2 * total
    square = (weight * residuals**2).sum(axis=0) - level**2 * once**2 / more
    spread = np.log(more) - np.log(weight).sum(axis=0)
    return np.asarray(-0.5 * (square + spread + len(residuals) * LOG_2PI))


def log_likelihood(
    residuals: Array, level: Sequence[float], noise: Array, groups: Sequence[int]
) -> Array:
    """Return the log density of the residuals of all runs, one level for each software.

    Args:
        residuals: Log of measured over predicted, a row per run.
        level: Standard deviation of the level of each run (log).
        noise: Standard deviation of each run (log); broadcasts with the residuals.
        groups: Software of each run: runs of one number share a level.
    """
    total = np.zeros(residuals.shape[1:])
    noise = np.broadcast_to(noise, residuals.shape)
    for group in sorted(set(groups)):
        rows = [place for place, each in enumerate(groups) if each == group]
        mean = float(np.mean([level[row] for row in rows]))
        total = total + shared_level(residuals[rows], mean, noise[rows])
    return total


def normalized(logs: Array) -> Array:
    """Return weights that add up to 1 along the last axis, from their logarithms.

    >>> normalized(np.array([-1000.0, -1000.0, -np.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    top = np.max(logs, axis=-1, keepdims=True)
    weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def entropy(weights: Array) -> Array:
    """Return the entropy of weights along the last axis, bits.

    >>> entropy(np.array([0.5, 0.5])).item()
    1.0
    """
    safe = np.where(weights > 0.0, weights, 1.0)
    return np.asarray(-(weights * np.log2(safe)).sum(axis=-1))


def quantiles(values: Array, weights: Array, at: Sequence[float]) -> list[float]:
    """Return quantiles of weighted values; the values are in order where they are a grid.

    Args:
        values: Values.
        weights: Their weights.
        at: Fractions from 0 to 1.
    """
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    middle = (below - 0.5 * weights[order]) / below[-1]
    return [float(np.interp(q, middle, values[order])) for q in at]

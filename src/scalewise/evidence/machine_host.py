"""Host time of PyTorch's wrappers on a user's CPUs, from a sweep of minimal decoders.

    found = host_constants(rows, plan, seconds_of, memory_rate=1e10)
    found.values["tp_host_seconds"], found.spread["tp_host_seconds"]

A wrapped step less a plain one is what estimates say of its collectives, and host time. The latter
grows with layers (hooks, dispatch), with parameters (copies), or not at all (embedding, head).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewise.measure.host_plan import HostPlan, cases_of
from scalewise.numeric import Array
from scalewise.records.job import TrainJob

CONSTANTS = {
    "fsdp": ("fsdp_host_seconds", "fsdp_step_seconds", "fsdp_copy_bytes"),
    "tp": ("tp_host_seconds", "tp_step_seconds"),
}
"""Constants of a stack by technique: per layer, per step, per parameter."""

DEVIATION = 0.7413
"""Standard deviation of normal samples over their interquartile range."""

MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean."""

Key = tuple[str, bool, int]


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """What a sweep of host time says."""

    values: dict[str, float]
    """By the name of a constant of the stack."""
    spread: dict[str, float]
    """Factor of one standard deviation, from the samples."""


def host_constants(
    rows: Sequence[Mapping[str, Any]],
    plan: HostPlan,
    seconds_of: Callable[[TrainJob], float],
    memory_rate: float,
) -> HostTime:
    """Return the constants of wrappers that rows determine.

    Args:
        rows: Of `measure host`.
        plan: The decoders.
        seconds_of: Estimate of a step without wrappers.
        memory_rate: Bytes/s of memory.
    """
    timed: dict[Key, Mapping[str, Any]] = {
        (str(row["technique"]), bool(row["wide"]), int(row["layers"])): row for row in rows
    }
    jobs: dict[Key, TrainJob] = {
        (c.technique, c.wide, c.job.model.layers): c.job for c in cases_of(plan)
    }
    values: dict[str, float] = {}
    spread: dict[str, float] = {}
    for technique, names in CONSTANTS.items():
        design, extra, errors = [], [], []
        for key, row in timed.items():
            bare = ("plain", *key[1:])
            if key[0] != technique or bare not in timed:
                continue
            plain, layers = timed[bare], key[2]
            said = seconds_of(jobs[key]) - seconds_of(jobs[bare])
            # Time that a thread has computed is no wait for a collective.
            elapsed = _seconds(row) - _seconds(plain) - said
            busy = (float(row["cpu_us"]) - float(plain["cpu_us"])) * 1e-6
            copied = layers * jobs[key].model.layer_parameters / memory_rate
            design.append((float(layers), 1.0, copied)[: len(names)])
            extra.append(max(elapsed, busy))
            errors.append(float(np.hypot(_error(row), _error(plain))))
        if len(extra) < len(names):
            continue
        found, deviation = _solve(np.array(design), np.array(extra), np.array(errors))
        for name, value, each in zip(names, found, deviation, strict=True):
            if value > 0.0:
                values[name], spread[name] = float(value), float(np.exp(min(each / value, 3.0)))
    return HostTime(values=values, spread=spread)


def _solve(design: Array, seconds: Array, errors: Array) -> tuple[Array, Array]:
    """Non-negative least squares of relative residuals, with standard deviations."""
    from scipy.optimize import nnls

    weights = 1.0 / np.maximum(np.abs(seconds), 1e-6)
    scales = np.abs(design).max(axis=0)
    matrix = design / scales * weights[:, None]
    found, _ = nnls(matrix, seconds * weights)
    deviation = np.sqrt(np.sum((np.linalg.pinv(matrix) * errors * weights) ** 2, axis=1))
    return np.asarray(found / scales), np.asarray(deviation / scales)


def _seconds(row: Mapping[str, Any]) -> float:
    return float(row["time_us"]) * 1e-6


def _error(row: Mapping[str, Any]) -> float:
    """Standard error of the median of a row, seconds."""
    samples = np.array(row["samples_us"], dtype=float) * 1e-6
    low, high = np.quantile(samples, [0.25, 0.75])
    return float(MEDIAN_ERROR * DEVIATION * (high - low) / np.sqrt(len(samples)))

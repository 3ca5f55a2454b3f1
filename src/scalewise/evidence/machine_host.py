"""Host time of PyTorch's wrappers on a user's CPUs, from a sweep of minimal decoders.

    found = host_constants(rows, optimizer_bytes=28.0, memory_rate=1e10)
    found.values["tp_host_seconds"], found.spread["tp_host_seconds"]

CPU time of a wrapped step less that of a plain one grows with layers (hooks, dispatch), with
parameters (copies), or not at all (embedding, head, loss).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewise.measure.host_plan import RANKS
from scalewise.numeric import Array

CONSTANTS = {
    "fsdp": ("fsdp_host_seconds", "fsdp_step_seconds", "fsdp_copy_bytes"),
    "tp": ("tp_host_seconds", "tp_step_seconds"),
}
"""Constants of a stack by technique: per layer, per step, per parameter."""

SMALL_CALLS = {"tp_host_seconds": 2, "tp_step_seconds": 8}
"""Small collectives of DTensor that estimates do not price, as counted in a profile of PyTorch 2.13
with sequence parallelism: all-reduces of the gradients of two norms per layer and of the last norm,
three of the loss, an all-gather and a reduce-scatter each around embedding and head."""

DEVIATION = 0.7413
"""Standard deviation of normal samples over their interquartile range."""

MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean."""

Key = tuple[str, bool, int]


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """What sweeps of host time say."""

    values: dict[str, float]
    """By the name of a constant of the stack."""
    spread: dict[str, float]
    """Factor of one standard deviation, from the samples."""


def host_constants(
    rows: Sequence[Mapping[str, Any]],
    *,
    optimizer_bytes: float,
    memory_rate: float,
    call_seconds: float = 0.0,
) -> HostTime:
    """Return the constants of wrappers that rows determine.

    Args:
        rows: Of `measure host`.
        optimizer_bytes: Bytes that the optimizer moves per parameter: FSDP shards them.
        memory_rate: Bytes/s of memory.
        call_seconds: Latency of a small collective, which CPU time does not contain.
    """
    timed: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        key = str(row["technique"]), bool(row["wide"]), int(row["layers"])
        timed.setdefault(key, []).append(row)
    times = {key: _seconds(each) for key, each in timed.items()}
    values: dict[str, float] = {}
    spread: dict[str, float] = {}
    for technique, names in CONSTANTS.items():
        design, extra, errors = [], [], []
        for (kind, wide, layers), (seconds, error) in times.items():
            if kind != technique or ("plain", wide, layers) not in times:
                continue
            plain, plain_error = times["plain", wide, layers]
            copied = layers * float(timed[kind, wide, layers][0]["layer_parameters"])
            saved = (1.0 - 1.0 / RANKS) * optimizer_bytes * copied if kind == "fsdp" else 0.0
            design.append((float(layers), 1.0, copied / memory_rate)[: len(names)])
            extra.append(seconds - plain + saved / memory_rate)
            errors.append(float(np.hypot(error, plain_error)))
        if len(extra) < len(names):
            continue
        found, deviation = _solve(np.array(design), np.array(extra), np.array(errors))
        for name, value, each in zip(names, found, deviation, strict=True):
            value = value + call_seconds * SMALL_CALLS.get(name, 0)
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


def _seconds(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the median CPU time of one decoder and its standard error, seconds."""
    samples = np.array([each for row in rows for each in row["samples_us"]], dtype=float) * 1e-6
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    error = MEDIAN_ERROR * DEVIATION * (high - low) / np.sqrt(len(samples))
    return float(middle), float(error)

"""Rates of one device of a user's machine, fitted to its kernel timings.

    fit = KernelRates(units=1.0).fit(rows)
    fit.values_["gemm_flops"], fit.spread_["gemm_flops"], fit.residuals_

Rows are predicted by the functions of a training step, so a rate learned here means the same thing
there. Rows in which a step spends most time weigh most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from scalewise.evidence.parameters import Parameter
from scalewise.evidence.robust import Key, learn
from scalewise.numeric import Array
from scalewise.physics.compute import K_FILL, attention_seconds, gemm_seconds

SCALE = 0.08
"""Residual (log) at which a row starts to count less: repeats of a kernel scatter by that much."""

PRIOR_SPREAD = 1.0
"""Log spread of beliefs: a factor of e around the first guess, so that rows decide."""

WIDE = 2.0
"""The same for the depth of a tile's fill, which is 128 on GPUs and next to nothing on CPUs."""

BACKWARD_WORK = 2.5

_FIRST = {"logit_bytes": 16.0, "optimizer_bytes": 28.0, "memory_traffic": 3.0}
"""Where the search starts, bytes per logit or parameter and passes over the least traffic: our
count of 32-bit reads and writes of a softmax with its gradient and of AdamW."""


class Residual(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One timing, and what the fitted constants say."""

    part: str
    """Kind of timing: "gemm", "all_reduce", "step" ..."""
    label: str
    """What it was."""
    size: float
    """What it grows with: FLOP, bytes or tokens."""
    measured: float
    """Seconds."""
    predicted: float
    """Seconds."""

    @property
    def off(self) -> float:
        """Log of predicted over measured."""
        return float(np.log(self.predicted / self.measured))


def elements(row: Mapping[str, Any]) -> float:
    """Elements that a block moves at least, forward and backward: see `step.layers`."""
    wide, ffn, gated = float(row["n"]), float(row["k"]), float(bool(row["gated"]))
    rotary = 2.0 * (float(row["query"]) + float(row["key_value"]))
    forward = 10.0 * wide + rotary + (2.0 + gated) * ffn
    backward = 12.0 * wide + rotary + (3.0 + 2.0 * gated) * ffn
    return float(row["m"]) * (forward + backward)


def attention_work(row: Mapping[str, Any]) -> float:
    """Causal FLOP of one forward."""
    size = float(row["batch"]) * float(row["heads"]) * float(row["seq_len"]) ** 2
    return 2.0 * size * float(row["head_dim"])


def predict_row(row: Mapping[str, Any], v: Mapping[str, float], units: float) -> float:
    """Seconds of one kernel, as estimates price it."""
    kernel, memory = row["kernel"], v["memory_rate"]
    if kernel == "gemm":
        m, n, k = (float(row[key]) for key in "mnk")
        return float(
            gemm_seconds(
                m,
                n,
                k,
                rate=v["gemm_flops"],
                units=units,
                memory_rate=memory,
                fill=v.get("gemm_fill", K_FILL),
            )
        )
    if kernel == "sdpa":
        work, length = attention_work(row), float(row["seq_len"])
        seconds = attention_seconds(work, rate=v["attention_forward_flops"], seq_len=length)
        if row["direction"] != "fwd":
            back = v["attention_backward_flops"]
            seconds += attention_seconds(BACKWARD_WORK * work, rate=back, seq_len=length)
        return float(seconds)
    if kernel == "hbm_stream_copy":
        return 2.0 * float(row["m"]) / memory
    if kernel == "block_elementwise":
        return 2.0 * v["memory_traffic"] * elements(row) / memory
    if kernel == "cross_entropy":
        return v["logit_bytes"] * float(row["m"]) * float(row["n"]) / memory
    if kernel == "adamw":
        return v["optimizer_bytes"] * float(row["m"]) / memory
    return v["launch_seconds"]


def predict_rows(rows: Sequence[Mapping[str, Any]], v: Mapping[str, float], units: float) -> Array:
    """Seconds by row; products, of which there are many, in one pass."""
    gemms = np.array([row["kernel"] == "gemm" for row in rows], dtype=bool)
    seconds = np.zeros(len(rows))
    if gemms.any():
        shapes = [[float(row[key]) for key in "mnk"] for row in rows if row["kernel"] == "gemm"]
        m, n, k = np.array(shapes).T
        rate, memory = v["gemm_flops"], v["memory_rate"]
        fill = v.get("gemm_fill", K_FILL)
        seconds[gemms] = gemm_seconds(
            m, n, k, rate=rate, units=units, memory_rate=memory, fill=fill
        )
    for place in np.flatnonzero(~gemms).tolist():
        seconds[place] = predict_row(rows[place], v, units)
    return seconds


_NEEDS = {
    "gemm": ("gemm_flops", "memory_rate", "gemm_fill"),
    "sdpa": ("attention_forward_flops", "attention_backward_flops"),
    "hbm_stream_copy": ("memory_rate",),
    "block_elementwise": ("memory_traffic",),
    "cross_entropy": ("logit_bytes",),
    "adamw": ("optimizer_bytes",),
    "launch": ("launch_seconds",),
}


class KernelRates:
    """Rates of one device from its own timings; learned values end in an underscore.

    Args:
        units: Compute units over which products are spread; 1 where waves do not exist.
        scale: Residual at which rows start to count less.

    Attributes:
        values_: Rates and traffic by name, SI.
        spread_: Factor of one standard deviation by name.
        residuals_: One for each row.
    """

    def __init__(self, *, units: float = 1.0, scale: float = SCALE) -> None:
        self.units, self.scale = units, scale
        self.values_: dict[str, float] = {}
        self.spread_: dict[str, float] = {}
        self.residuals_: list[Residual] = []

    def fit(self, rows: Sequence[Mapping[str, Any]]) -> KernelRates:
        """Learn from rows of `measure kernels`; kinds without timings are skipped."""
        known = [row for row in rows if row["kernel"] in _NEEDS]
        first = _first_guess(known)
        parameters: dict[Key, Parameter] = {
            ("chip", "", name): Parameter(
                name=name, scope="chip", prior=value,
                spread=WIDE if name == "gemm_fill" else PRIOR_SPREAD,
                low=value / 100.0, high=value * 100.0,
            )
            for name, value in first.items()
        }  # fmt: skip
        measured = np.array([float(row["time_us"]) * 1e-6 for row in known])

        def error(values: dict[Key, float]) -> Array:
            plain = {key[2]: value for key, value in values.items()}
            return np.asarray(np.log(predict_rows(known, plain, self.units) / measured))

        learned = learn(error, parameters, _weights(known, measured), self.scale)
        self.values_ = {key[2]: value for key, value in learned.values.items()}
        self.spread_ = {key[2]: value for key, value in learned.spread.items()}
        self.residuals_ = [
            Residual(
                part=str(row["kernel"]),
                label=_label(row),
                size=float(seconds),
                measured=float(seconds),
                predicted=predict_row(row, self.values_, self.units),
            )
            for row, seconds in zip(known, measured, strict=True)
        ]
        return self

    def predict(self, rows: Sequence[Mapping[str, Any]]) -> Array:
        """Seconds by row."""
        return predict_rows(rows, self.values_, self.units)


def _first_guess(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """A value for every constant that some row needs."""

    def fastest(kernel: str, rate: Callable[[Mapping[str, Any]], float]) -> float:
        return max((rate(row) for row in rows if row["kernel"] == kernel), default=0.0)

    guess = dict(_FIRST)
    guess["memory_rate"] = fastest("hbm_stream_copy", lambda r: float(r["gb_per_s"]) * 1e9)
    guess["gemm_flops"] = fastest("gemm", lambda r: float(r["tflops"]) * 1e12)
    guess["attention_forward_flops"] = fastest("sdpa", lambda r: float(r["tflops"]) * 1e12)
    guess["attention_backward_flops"] = guess["attention_forward_flops"]
    guess["launch_seconds"] = 1e-5
    guess["gemm_fill"] = K_FILL
    needed = {name for row in rows for name in _NEEDS[row["kernel"]]}
    return {name: value for name, value in guess.items() if name in needed and value > 0.0}


def _weights(rows: Sequence[Mapping[str, Any]], seconds: Array) -> Array:
    """Weights within a kind by the root of the share of its time, so that the long rows decide."""
    kinds = np.array([row["kernel"] for row in rows])
    weights = np.zeros(len(rows))
    for kind in set(kinds.tolist()):
        mine = kinds == kind
        share = seconds[mine] / seconds[mine].sum()
        weights[mine] = np.sqrt(share * mine.sum())
    return weights


def _label(row: Mapping[str, Any]) -> str:
    shape = " x ".join(str(row[key]) for key in ("m", "n", "k", "seq_len") if key in row)
    return f"{row['kernel']} {shape} {row.get('direction', '')}".strip()

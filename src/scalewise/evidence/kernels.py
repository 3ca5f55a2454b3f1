"""Efficiencies of chips fitted to published kernel timings.

    rows, skipped = read_kernels()                  # the shipped GEMM, attention, STREAM timings
    fit = KernelsFit().fit(rows)
    fit.values_[("chip", "hopper", "gemm.fp8")], fit.attention_["hopper", "cudnn"]

These are kernels alone on a cool chip: a training step sustains 81 to 91% of a GEMM, so a
calibration on runs starts from `gemm.*` and stays below. Training runs causal attention with heads
of 128; where only full attention was published, `non_causal_` lists the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from scalewise.catalog import load_accelerator
from scalewise.chip import UNCALIBRATED
from scalewise.errors import InputError
from scalewise.evidence.parameters import Parameter
from scalewise.evidence.robust import Key, RobustFit, shared_weights, sort_rows
from scalewise.numeric import Array, Num
from scalewise.physics.compute import KERNEL_SECONDS, attention_seconds, gemm_seconds

SHIPPED = Path(__file__).parent.parent / "catalog" / "runs" / "kernels.csv"

Kind = Literal["gemm", "search", "attention", "stream"]
GENERATIONS = {"flash_attention_2": "flash2", "cudnn_attention": "cudnn"}
_KINDS: dict[str, Kind] = {"gemm": "gemm", "gemm_deepgemm": "gemm", "mamf_matmul": "search"}
PRECISIONS = {"fp16": "bf16", "bf16": "bf16", "fp16/bf16": "bf16", "fp8": "fp8"}
# Work of forward and backward in a row, in units of forward: 2.5 in the papers as in estimates.
PASSES = {"fwd": (1.0, 0.0), "bwd": (0.0, 2.5), "fwd+bwd": (1.0, 2.5)}

SMALL, LARGE = 2e10, 1e12
"""FLOP of a small and of a large kernel: products of about 2,000 and 8,000 cubed."""

SCALE = 0.05
"""Residual at which rows start to count less."""

# How far the logarithm of a share may be from that of an uncalibrated chip, which is the prior.
# Brute-force searches reach 0.51 to 0.97 of peak, attention 0.3 to 0.6, STREAM 0.81 to 0.89.
SPREADS = {"gemm": 0.2, "forward": 0.4, "backward_ratio": 0.1, "memory_efficiency": 0.1}


class Kernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One timing of one kernel."""

    name: str
    """Key of the row."""
    kind: Kind
    """Which formula prices it; a search is the best published GEMM shape."""
    kernel: str
    """Generation of an attention kernel, otherwise as the table names it."""
    accelerator: str
    """Key into the catalog."""
    architecture: str
    """Owner of the constants."""
    precision: str
    """bf16 for all 16-bit types, or fp8; of the operands."""
    peak: float
    """Datasheet peak of that precision, FLOP/s."""
    units: float
    """Compute units; 1 if not published."""
    memory_bandwidth: float
    """Datasheet bandwidth of memory, bytes/s."""
    work: float
    """FLOP of the kernel (causal ones if it is causal), or bytes that it moves."""
    seconds: float
    """Measured time, seconds."""
    m: float = 0.0
    """Rows of a product."""
    n: float = 0.0
    """Its columns."""
    k: float = 0.0
    """Its depth."""
    seq_len: float = 1.0
    """Tokens of an attention kernel."""
    head: int = 0
    """Head dimension of an attention kernel."""
    causal: bool = False
    """Whether attention is causal."""
    direction: str = "fwd"
    """fwd, bwd or fwd+bwd."""
    software: str = ""
    """Library or harness, if stated."""
    source: str = ""
    """Where it was read."""

    @property
    def keys(self) -> list[Key]:
        """Constants that decide its time."""
        if self.kind == "stream":
            names = ["memory_efficiency"]
        elif self.kind == "attention":
            names = [f"attention.{self.kernel}.forward"]
            if self.direction != "fwd":
                names.append(f"attention.{self.kernel}.backward_ratio")
        else:
            names = [f"gemm.{self.precision}", "memory_efficiency"]
        return [("chip", self.architecture, name) for name in names]

    @property
    def group(self) -> str:
        """Heading under which its error is reported."""
        if self.kind == "attention":
            mask = "causal" if self.causal else "full"
            return f"{self.architecture} {self.kernel} {self.direction} {mask} {self.head}"
        what = "stream" if self.kind == "stream" else f"{self.kernel} {self.precision}"
        return f"{self.architecture} {what} ({self.software.split(',')[-1].strip() or '?'})"


def read_kernels(path: str | Path | None = None) -> tuple[list[Kernel], dict[str, int]]:
    """Read timings of kernels.

    Args:
        path: A CSV file with the columns of the shipped one, or None for the shipped one.

    Returns:
        The rows that can be predicted, and how many others there were by reason.

    Raises:
        InputError: If the file cannot be read.
    """
    return sort_rows(SHIPPED if path is None else Path(path), _kernel)


def _kernel(cells: Mapping[str, str]) -> Kernel | str:
    """One row, or why it cannot be predicted."""
    kernel, name = cells.get("kernel", ""), cells.get("accelerator", "")
    kind: Kind | None = "attention" if kernel in GENERATIONS else _KINDS.get(kernel)
    kind = "stream" if kernel.startswith("hbm_stream") else kind
    if kind is None:
        return "kernel not modeled"
    try:
        chip = load_accelerator(name)
    except InputError:
        return "accelerator not in the catalog"
    precision = PRECISIONS.get(cells.get("dtype", "bf16"), "")
    peak = chip.peak_flops.get(precision)
    if peak is None:
        return "unknown precision"
    m, n, k = (float(cells.get(key, 0)) for key in "mnk")
    direction, causal = cells.get("direction", "fwd"), cells.get("causal")
    seq_len, head = float(cells.get("seq_len", 1)), int(cells.get("head_dim", 0))
    rate, work = float(cells.get("tflops", 0)) * 1e12, 2.0 * m * n * k
    if kind == "stream":
        rate, work = float(cells.get("gb_per_s", 0)) * 1e9, 1e9
    elif kind == "attention":
        if causal is None or "heads" not in cells or direction not in PASSES or precision != "bf16":
            return "attention without causality, direction or heads, or not in 16 bits"
        scores = float(cells["batch"]) * float(cells["heads"]) * seq_len * seq_len
        scores = scores / 2.0 if causal == "true" else scores
        work = 4.0 * scores * head * sum(PASSES[direction])
    if work <= 0.0 or rate <= 0.0:
        return "no shape or no rate"
    return Kernel(
        name=cells.get("id", ""), kind=kind, kernel=GENERATIONS.get(kernel, kernel),
        accelerator=name, architecture=chip.architecture, precision=precision, peak=peak,
        units=float(chip.compute_units or 1), memory_bandwidth=chip.memory_bandwidth,
        work=work, seconds=work / rate, m=m, n=n, k=k, seq_len=seq_len, head=head,
        causal=causal == "true", direction=direction,
        software=cells.get("software", ""), source=cells.get("source", ""),
    )  # fmt: skip


def predict_gemm(rows: Sequence[Kernel], share: Num, memory_efficiency: Num = 0.85) -> Array:
    """Price products as estimates do.

    Args:
        rows: Timings; those without m, n and k get the time of an empty kernel.
        share: Share of peak that large products reach, one or by row.
        memory_efficiency: Share of memory bandwidth, one or by row.

    Returns:
        Seconds by row.
    """
    m, n, k, units, peak, memory = (
        np.array([getattr(row, name) for row in rows])
        for name in ("m", "n", "k", "units", "peak", "memory_bandwidth")
    )
    bytes_ = np.array([1.0 if row.precision == "fp8" else 2.0 for row in rows])
    rates = {"rate": peak * share, "memory_rate": memory * memory_efficiency}
    return np.asarray(gemm_seconds(m, n, k, **rates, units=units, element_bytes=bytes_))


def predict_kernels(rows: Sequence[Kernel], constants: Mapping[Key, float] | None = None) -> Array:
    """Price rows as estimates do.

    Args:
        rows: Timings.
        constants: Values by key; those of an uncalibrated chip where they are missing.

    Returns:
        Seconds by row.
    """

    def share(row: Kernel, name: str) -> float:
        return (constants or {}).get(("chip", row.architecture, name), _default(name))

    shares = np.array([share(row, f"gemm.{row.precision}") for row in rows])
    memory = np.array([share(row, "memory_efficiency") for row in rows])
    seconds = predict_gemm(rows, shares, memory)
    for i, row in enumerate(rows):
        if row.kind == "stream":
            seconds[i] = row.work / (row.memory_bandwidth * share(row, "memory_efficiency"))
        elif row.kind == "attention":
            rate = row.peak * share(row, f"attention.{row.kernel}.forward")
            back = rate * share(row, f"attention.{row.kernel}.backward_ratio")
            once, again = np.array(PASSES[row.direction]) * row.work / sum(PASSES[row.direction])
            seconds[i] = attention_seconds(once, rate=rate, seq_len=row.seq_len)
            seconds[i] += attention_seconds(again, rate=back, seq_len=row.seq_len)
    return seconds


def _default(name: str) -> float:
    """The efficiency of an uncalibrated chip."""
    kind, *rest = name.split(".")
    if kind == "gemm":
        return UNCALIBRATED.gemm[rest[0]]
    if kind == "attention":
        forward, backward = UNCALIBRATED.attention[rest[0]]
        return forward if rest[1] == "forward" else backward / forward
    return UNCALIBRATED.memory_efficiency


def _belief(name: str) -> Parameter:
    """The prior of an efficiency."""
    parts, prior = name.split("."), _default(name)
    spread = SPREADS.get(parts[-1]) or SPREADS[parts[0]]
    return Parameter(name=name, scope="chip", prior=prior, spread=spread, low=0.05, high=1.0)


class KernelsFit(RobustFit):
    """Shares of peak from timings, beginning at those of an uncalibrated chip.

    Attributes:
        rows_: The rows that taught.
        attention_: Forward and backward shares by architecture and kernel generation.
        upper_: Shares that the best shape of a brute-force search implies: no GEMM is faster.
        non_causal_: Attention shares for which only full attention was published.
    """

    def __init__(self, *, scale: float = SCALE) -> None:
        super().__init__(scale=scale)
        self.rows_: list[Kernel] = []
        self.attention_: dict[tuple[str, str], tuple[float, float]] = {}
        self.upper_: dict[Key, float] = {}
        self.non_causal_: list[Key] = []

    def fit(self, rows: Sequence[Kernel]) -> KernelsFit:
        """Learn from large products, STREAM, and causal attention with heads of 128.

        Raises:
            InputError: If there are none of them.
        """
        used = [r for r in rows if r.kind == "stream" or (r.kind == "gemm" and r.work > SMALL)]
        attention = [row for row in rows if row.kind == "attention" and row.head == 128]
        used += [row for row in attention if row.causal]
        covered = {key for row in used for key in row.keys}
        used += [row for row in attention if not covered.issuperset(row.keys)]
        if not used:
            raise InputError("no kernel timing to learn from", hint="give GEMM or STREAM rows")
        keys = {key for row in used for key in row.keys}
        self.rows_, self.non_causal_ = used, sorted(keys - covered)
        parameters = {key: _belief(key[2]) for key in sorted(keys)}
        sweeps = [(row.source, row.group) for row in used]
        self._learn(lambda v: _error(used, v), parameters, shared_weights(sweeps))
        self.attention_, self.upper_ = {}, {}
        for scope, owner, name in sorted(keys):
            if name.endswith(".forward"):
                generation, forward = name.split(".")[1], self.values_[scope, owner, name]
                ratio = (scope, owner, f"attention.{generation}.backward_ratio")
                backward = forward * self.values_.get(ratio, _default(ratio[2]))
                self.attention_[owner, generation] = (forward, backward)
        for row in (row for row in rows if row.kind == "search"):
            fastest = float(predict_gemm([row], 1.0)[0])
            share = (fastest - KERNEL_SECONDS) / (row.seconds - KERNEL_SECONDS)
            self.upper_[row.keys[0]] = max(share, self.upper_.get(row.keys[0], 0.0))
        groups, size = [row.group for row in rows], np.array([row.work for row in rows])
        before, after = _error(rows, {}), _error(rows, self.values_)
        self._report(before, after, groups, size, (SMALL, LARGE))
        return self

    def predict(self, rows: Sequence[Kernel]) -> Array:
        """Seconds by row; chips that were never seen keep the shares of an uncalibrated one."""
        return predict_kernels(rows, self.values_)


def _error(rows: Sequence[Kernel], values: Mapping[Key, float]) -> Array:
    """Log of predicted over measured."""
    return np.asarray(np.log(predict_kernels(rows, values) / [row.seconds for row in rows]))

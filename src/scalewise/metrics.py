"""Table of metrics: name, label, unit, factor from SI, digits, direction.

    METRICS["mfu"].show(0.4077)           # "40.8%"
    METRICS["mfu"].axis                   # "MFU (%)"
    as_dicts()                            # rows for JSON

Figures, tables, data files, studies and the web UI read names and units here. A new metric of
`scale` is one field of `explore.points.Point`, the line of `explore.tasks` that fills it, and one
row here. Values are SI everywhere else.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from scalewise.units import GIB, format_percent


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number that a point of a table has."""

    name: str
    """Name in Python, JSON, data files and study files."""
    label: str
    """Noun phrase, without the unit."""
    unit: str = ""
    """Unit of the shown number; empty if it is a plain number."""
    column: str = ""
    """Head of a narrow column; the unit if empty."""
    factor: float = 1.0
    """Factor from SI to the unit; 100 for fractions, which are shown as percentages."""
    digits: int = 3
    """Significant digits in tables."""
    better: Literal["high", "low", ""] = "high"
    """Direction of an improvement; empty if there is none."""
    zero: bool = True
    """Whether the axis of a figure begins at zero."""
    panel: bool = False
    """Whether `scale` draws it."""

    @property
    def axis(self) -> str:
        """Title of an axis: "step time (s)"."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def head(self) -> str:
        """Head of a narrow column: "tok/s/GPU"."""
        return self.column or self.unit or self.label

    @property
    def is_share(self) -> bool:
        """Whether it is a fraction, shown as a percentage."""
        return self.factor == 100.0

    @property
    def words(self) -> tuple[str, str]:
        """Label and unit."""
        return self.label, self.unit

    def number(self, value: float | None) -> str:
        """Return a value in its unit, without it; fractions with one decimal."""
        if value is None:
            return "-"
        shown = value * self.factor
        if self.is_share:
            return f"{shown:.1f}"
        if shown == 0.0 or not math.isfinite(shown):
            return f"{shown:g}"
        decimals = self.digits - 1 - math.floor(math.log10(abs(shown)))
        return f"{shown:,.{max(decimals, 0)}f}"

    def show(self, value: float | None) -> str:
        """Return a value as text, without its unit unless that is the percent sign."""
        if value is None or not self.is_share:
            return self.number(value)
        return format_percent(value)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain types, with the derived texts."""
        return asdict(self) | {"axis": self.axis, "head": self.head}


def _percent(name: str, label: str, unit: str = "%", **fields: Any) -> Metric:
    """A fraction, shown as a percentage."""
    return Metric(name=name, label=label, unit=unit, factor=100.0, **fields)


_METRICS = (
    Metric(name="tokens_per_second", label="total throughput", unit="tok/s"),
    Metric(
        name="tokens_per_second_per_accelerator", label="throughput", unit="tok/s/GPU", panel=True
    ),
    _percent(
        "scaling_efficiency", "scaling efficiency", "% of the smallest size", column="efficiency %"
    ),
    Metric(name="speedup", label="speedup over the smallest size", unit="x"),
    _percent(
        "marginal_return", "marginal efficiency", "% of the smallest size", column="marginal %"
    ),
    _percent(
        "marginal_joule_return", "marginal efficiency per facility watt", "% of the smallest size",
        column="marginal %/W",
    ),
    Metric(
        name="marginal_tokens_per_second", label="marginal throughput",
        unit="tok/s per added GPU", panel=True,
    ),
    Metric(name="tflops_per_accelerator", label="model FLOP/s", unit="TFLOP/s/GPU"),
    _percent("mfu", "MFU", column="MFU %"),
    _percent("hfu", "HFU", column="HFU %"),
    Metric(name="step_seconds", label="step time", unit="s", column="step s", better="low"),
    Metric(
        name="accelerator_seconds_per_token", label="GPU time per token", unit="us", factor=1e6,
        better="low",
    ),
    _percent("comm_fraction", "communication", "% of step", better="low"),
    _percent(
        "exposed_fraction", "exposed communication", "% of step", column="exposed %",
        better="low", panel=True,
    ),
    _percent("contention_share", "contention", "% of step", column="contention %", better="low"),
    _percent(
        "communication_share", "exposed communication + contention", "% of step", better="low"
    ),
    _percent("hidden_share", "overlapped communication", "% of communication"),
    _percent(
        "exposed_contention_share", "exposed communication + contention", "% of communication",
        better="low",
    ),
    _percent("bubble_share", "pipeline bubble", "% of step", column="bubble %", better="low"),
    _percent("ep_share", "exposed EP", "% of step", column="EP %", better="low"),
    Metric(name="tp_degree", label="tensor-parallel degree", column="TP", digits=1, better=""),
    Metric(name="pp_degree", label="pipeline stages", column="PP", digits=1, better=""),
    Metric(name="cp_degree", label="context-parallel degree", column="CP", digits=1, better=""),
    Metric(name="ep_degree", label="expert-parallel degree", column="EP", digits=1, better=""),
    Metric(
        name="all_gather_seconds", label="all-gather of one layer", unit="ms", factor=1e3,
        better="low",
    ),
    _percent(
        "gather_latency_share", "latency of the all-gather of one layer", "% of its time",
        better="low",
    ),
    Metric(
        name="memory_bytes", label="peak memory of the worst rank", unit="GiB", factor=1 / GIB,
        better="low",
    ),
    _percent("fit", "chance to fit into memory", column="fit %"),
    Metric(
        name="watts_per_accelerator", label="power", unit="W/GPU", better="low", panel=True,
    ),
    Metric(name="site_watts", label="facility power", unit="MW", factor=1e-6, better="low"),
    Metric(name="tokens_per_joule", label="tokens per facility joule", unit="tok/J", panel=True),
    Metric(name="tokens_per_device_joule", label="tokens per GPU joule", unit="tok/J"),
    Metric(name="joules_per_token", label="facility energy", unit="J/token", better="low"),
    Metric(
        name="usd_per_million_tokens", label="cost", unit="$/M tokens", column="$/M tok",
        better="low", panel=True,
    ),
    Metric(
        name="marginal_tokens_per_joule", label="marginal tokens per facility joule",
        unit="tok/J",
    ),
    Metric(
        name="marginal_usd_per_million_tokens", label="marginal cost", unit="$/M tokens",
        column="$/M tok", better="low",
    ),
    _percent("statistical_efficiency", "statistical efficiency", "% of tokens",
        column="statistical %",),
    Metric(name="effective_tokens_per_second", label="effective throughput", unit="tok/s"),
    Metric(
        name="effective_tokens_per_second_per_accelerator", label="effective throughput",
        unit="effective tok/s/GPU", panel=True,
    ),
    _percent("goodput", "goodput", "% of wall time", column="goodput %", panel=True),
    Metric(name="collective_seconds", label="collective time", unit="ms", factor=1e3, better="low"),
    Metric(name="bus_bandwidth", label="bus bandwidth", unit="GB/s", factor=1e-9),
    _percent("gain", "gain in tok/s"),
    _percent("energy_gain", "gain in tok/J"),
    _percent("cost_gain", "gain in tok/$"),
    Metric(name="elasticity", label="elasticity of tok/s", unit="% per %", zero=False),
    Metric(name="energy_elasticity", label="elasticity of tok/J", unit="% per %", zero=False),
    Metric(name="cost_elasticity", label="elasticity of tok/$", unit="% per %", zero=False),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
"""All metrics by name, in the order of columns."""


def as_dicts() -> list[dict[str, Any]]:
    """Return all metrics as plain types, in order."""
    return [metric.as_dict() for metric in _METRICS]
